"""The coordinator shards that this broker owns, according to the topology that it last read. Groups and transactions
ask for the epoch under which they may commit."""

from collections.abc import Collection

from millpond.model.ids import Session
from millpond.topology.lease import Lease
from millpond.topology.view import TopologyView


class OwnedShards:
    """Shards in a handover are not owned, although the catalog still assigns them to this broker. Changed on the
    event loop; `epoch_of` is a single lookup that any thread may call."""

    def __init__(self, lease: Lease, view: TopologyView, session: Session) -> None:
        self._lease = lease
        self._view = view
        self._session = session
        self._epochs: dict[int, int] = {}
        self._in_handover: set[int] = set()

    def epoch_of(self, shard: int) -> int | None:
        """The epoch under which this broker owns the shard; None if it does not, or if its lease has expired."""
        epoch = self._epochs.get(shard)
        return epoch if self._lease.held else None

    def apply(self) -> None:
        """Apply the current topology."""
        for shard, owner in self._view.current.shards.items():
            if owner.session == self._session and shard not in self._in_handover:
                self._epochs[shard] = owner.epoch
            else:
                self._epochs.pop(shard, None)

    async def prepare_handover(self, shards: Collection[int]) -> None:
        """Stop coordinating these shards. This broker still owns them until the handover is committed."""
        self._in_handover.update(shards)
        for shard in shards:
            self._epochs.pop(shard, None)

    def end_handover(self, shards: Collection[int]) -> None:
        """The handover has completed or failed: coordinate the shards that this broker still owns."""
        self._in_handover.difference_update(shards)
        self.apply()
