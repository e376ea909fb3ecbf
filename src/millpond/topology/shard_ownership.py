"""Which coordinator shards this broker owns, according to the topology that it last read. Shards in a handover are not
owned, although the catalog still assigns them to this broker. State changes only between awaits."""

from collections.abc import Collection

from millpond.model.ids import Session
from millpond.topology.lease import Shards
from millpond.topology.view import TopologyView


class ShardOwnership:
    def __init__(self, shards: Shards, view: TopologyView, session: Session) -> None:
        """Keeps `shards` current."""
        self._shards = shards
        self._view = view
        self._session = session
        self._in_handover: set[int] = set()

    def apply(self) -> None:
        """Apply the current topology."""
        for shard, owner in self._view.current.shards.items():
            if owner.session == self._session and shard not in self._in_handover:
                self._shards[shard] = owner.epoch
            else:
                self._shards.pop(shard, None)

    async def prepare_handover(self, shards: Collection[int]) -> None:
        """Stop coordinating these shards. This broker still owns them until the handover is committed."""
        self._in_handover.update(shards)
        for shard in shards:
            self._shards.pop(shard, None)

    def end_handover(self, shards: Collection[int]) -> None:
        """The handover has completed or failed: coordinate the shards that this broker still owns."""
        self._in_handover.difference_update(shards)
        self.apply()
