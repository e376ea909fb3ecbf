"""The coordinator shards that this broker owns. `Membership` changes them when it applies a topology and during
handovers; groups and transactions ask for the epoch under which they may commit."""

from millpond.cluster.lease import Lease


class OwnedShards:
    """Changed on the event loop; `epoch_of` is a single lookup that any thread may call."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._epochs: dict[int, int] = {}

    def epoch_of(self, shard: int) -> int | None:
        """The epoch under which this broker owns the shard; None if it does not, or if its lease has expired."""
        epoch = self._epochs.get(shard)
        return epoch if self._lease.held else None

    def add(self, shard: int, epoch: int) -> None:
        self._epochs[shard] = epoch

    def remove(self, shard: int) -> None:
        self._epochs.pop(shard, None)
