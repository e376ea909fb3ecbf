"""How long this broker may go on without asking: until its lease could have run out, by its own monotonic clock.

The catalog refuses whoever was replaced, whatever the clocks say. The deadline here is for what the catalog does not
see: a broker that was paused, or cut off, must not deliver or answer reads as if it were still the owner.
"""

import math
from typing import Final

from millpond.model.clock import Clock

IN_TIME: Final = 0.7
"""What part of a lease may pass between two renewals: they are sent after a fifth of it, and others' leases, renewed up
to a fifth earlier than this one, must not have run out when this one is called steady. What is left is for commits that
take their time: a broker under load that calls itself late replaces nobody, and the dead are not replaced at all."""


class Lease:
    """Counted from before the renewal was sent, so that it never outlives what the catalog has noted."""

    def __init__(self, clock: Clock, lease_ms: int, *, alone: bool = False) -> None:
        """One that is `alone` holds the data directory: nobody can take anything from it."""
        self._clock = clock
        self._lease_ms = lease_ms
        self._alone = alone
        self._until_ms: float = math.inf if alone else clock.monotonic_ms() + lease_ms
        self._steady_since_ms = self._renewed_at_ms = clock.monotonic_ms()

    @property
    def held(self) -> bool:
        return self._alone or self._clock.monotonic_ms() < self._until_ms

    @property
    def is_overdue(self) -> bool:
        """Whether it has not been renewed for as long as it lasts. One that is `alone` loses nothing by that, but its
        catalog commits nothing."""
        return not self.held or self._clock.monotonic_ms() - self._renewed_at_ms > self._lease_ms

    @property
    def is_steady(self) -> bool:
        """Whether it has been renewed in time for as long as a lease lasts. Only then may others be judged: after an
        outage of the catalog everybody's lease has run out, and those who live need time to say so. An outage that
        this lease has just survived may have been too long for another, so in time is well before the end."""
        return self._clock.monotonic_ms() - self._steady_since_ms >= self._lease_ms

    def renewed(self, sent_at_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self.held or now_ms - self._renewed_at_ms > self._lease_ms * IN_TIME:
            self._steady_since_ms = now_ms
        self._renewed_at_ms = now_ms
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
