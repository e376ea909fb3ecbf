"""The topology that this broker last read, and what follows it."""

from millpond.catalog.topology import Ownership, Topology
from millpond.model.ids import Session
from millpond.testing import SimulatedClock
from millpond.topology import Lease, ShardOwnership, Shards, TopologyView

ME, OTHER = Session("me"), Session("other")


def shards_of(*owners):
    return Topology(1, {}, {}, {shard: Ownership(owner, 7) for shard, owner in enumerate(owners)})


def test_subscribers_are_called_in_their_order_and_see_the_new_topology():
    view, called = TopologyView(), []
    view.subscribe(lambda: called.append(("first", view.current.version)))
    view.subscribe(lambda: called.append(("second", view.current.version)))
    view.apply(Topology(3))
    assert called == [("first", 3), ("second", 3)]


async def test_shards_in_handover_are_not_taken_back_before_it_has_ended():
    view, shards = TopologyView(), Shards(Lease(SimulatedClock(), 1_000, sole_broker=True))
    ownership = ShardOwnership(shards, view, ME)
    view.subscribe(ownership.apply)
    view.apply(shards_of(ME, ME, OTHER))
    assert dict(shards) == {0: 7, 1: 7}
    await ownership.prepare_handover([0, 1])
    view.apply(shards_of(ME, ME, OTHER))
    assert dict(shards) == {}
    view.apply(shards_of(OTHER, ME, ME))
    assert dict(shards) == {2: 7}
    ownership.end_handover([0, 1])
    assert dict(shards) == {1: 7, 2: 7}, "the one that could not be handed over is kept"
