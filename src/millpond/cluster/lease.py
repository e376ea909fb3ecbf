"""How long this broker may go on without asking: until its lease could have run out, by its own monotonic clock.

The catalog refuses whoever was replaced, whatever the clocks say. The deadline here is for what the catalog does not
see: a broker that was paused, or cut off, must not deliver or answer reads as if it were still the owner.
"""

import math

from millpond.model.clock import Clock


class Lease:
    """Counted from before the renewal was sent, so that it never outlives what the catalog has noted."""

    def __init__(self, clock: Clock, lease_ms: int, *, alone: bool = False) -> None:
        """One that is `alone` holds the data directory: nobody can take anything from it."""
        self._clock = clock
        self._lease_ms = lease_ms
        self._alone = alone
        self._until_ms: float = math.inf if alone else clock.monotonic_ms() + lease_ms
        self._steady_since_ms = clock.monotonic_ms()

    @property
    def held(self) -> bool:
        return self._alone or self._clock.monotonic_ms() < self._until_ms

    @property
    def is_steady(self) -> bool:
        """Whether it has been renewed in time for as long as a lease lasts. Only then may others be judged: after an
        outage of the catalog everybody's lease has run out, and those who live need time to say so."""
        return self._clock.monotonic_ms() - self._steady_since_ms >= self._lease_ms

    def renewed(self, sent_at_ms: int) -> None:
        if not self.held:
            self._steady_since_ms = self._clock.monotonic_ms()
        if not self._alone:
            self._until_ms = max(self._until_ms, sent_at_ms + self._lease_ms)

    def lapse(self) -> None:
        """Somebody has declared this session dead."""
        self._alone = False
        self._until_ms = -math.inf


class Shards(dict[int, int]):
    """The coordinator shards this broker keeps, each with its epoch. Without the lease it keeps none."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def __contains__(self, shard: object) -> bool:
        return super().__contains__(shard) and self._lease.held
