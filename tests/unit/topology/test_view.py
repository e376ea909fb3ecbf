"""The topology that this broker last read, and what follows it."""

from millpond.catalog.topology import Topology
from millpond.topology import TopologyView


def test_subscribers_are_called_in_their_order_and_see_the_new_topology():
    view, called = TopologyView(), []
    view.subscribe(lambda: called.append(("first", view.current.version)))
    view.subscribe(lambda: called.append(("second", view.current.version)))
    view.apply(Topology(3))
    assert called == [("first", 3), ("second", 3)]
