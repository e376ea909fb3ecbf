"""The coordinator shards that a broker owns: by the topology, without those in a handover, and only with its lease."""

from millpond.catalog.topology import Ownership, Topology
from millpond.model.ids import Session
from millpond.testing import SimulatedClock
from millpond.topology import Lease, OwnedShards, TopologyView

ME, OTHER = Session("me"), Session("other")
SHARDS = 3


class Setting:
    def __init__(self):
        self.clock, self.view = SimulatedClock(), TopologyView()
        self.shards = OwnedShards(Lease(self.clock, 1_000), self.view, ME)
        self.view.subscribe(self.shards.apply)

    def assign(self, *owners):
        self.view.apply(
            Topology(1, {}, {}, {shard: Ownership(owner, 7) for shard, owner in enumerate(owners)})
        )

    def epochs(self):
        return [self.shards.epoch_of(shard) for shard in range(SHARDS)]


def test_shards_are_kept_only_with_the_lease():
    setting = Setting()
    setting.assign(ME, OTHER, ME)
    assert setting.epochs() == [7, None, 7]
    setting.clock.advance(1_000)
    assert setting.epochs() == [None, None, None]


def test_a_shard_that_moved_to_another_broker_has_no_epoch():
    setting = Setting()
    setting.assign(ME, OTHER, ME)
    setting.assign(OTHER, OTHER, ME)
    assert setting.epochs() == [None, None, 7]


async def test_shards_in_handover_are_not_taken_back_before_it_has_ended():
    setting = Setting()
    setting.assign(ME, ME, OTHER)
    assert setting.epochs() == [7, 7, None]
    await setting.shards.prepare_handover([0, 1])
    setting.assign(ME, ME, OTHER)
    assert setting.epochs() == [None, None, None]
    setting.assign(OTHER, ME, ME)
    assert setting.epochs() == [None, None, 7]
    setting.shards.end_handover([0, 1])
    assert setting.epochs() == [None, 7, 7], "the one that could not be handed over is kept"
