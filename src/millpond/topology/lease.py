"""How long this broker may act as owner without a renewal: until its lease could have expired, by its monotonic clock.

The catalog rejects commits of a broker that was replaced, independent of clocks. The deadline here covers what the
catalog does not see: a broker that was paused or disconnected must not deliver messages or serve reads as if it were
still the owner.
"""

import math
from typing import Final

from millpond.model.clock import Clock

IN_TIME: Final = 0.7
"""The fraction of a lease that may pass between two renewals before this broker counts as late. Renewals are sent every
fifth of a lease, so another broker's last renewal may be up to a fifth older than this one's, and its lease must not
have expired while this one counts as steady. The rest is margin for slow commits: a broker that counts as late declares
no other dead, so if all were late under load, dead brokers would never be replaced."""


class Lease:
    """Counts from before the renewal was sent, so that it never lasts longer than the lease in the catalog."""

    def __init__(self, clock: Clock, lease_ms: int, *, sole_broker: bool = False) -> None:
        """A broker that is `sole_broker` holds the data directory, so no other can take anything from it."""
        self._clock = clock
        self._lease_ms = lease_ms
        self._sole_broker = sole_broker
        self._until_ms: float = math.inf if sole_broker else clock.monotonic_ms() + lease_ms
        self._steady_since_ms = self._renewed_at_ms = clock.monotonic_ms()

    @property
    def held(self) -> bool:
        return self._sole_broker or self._clock.monotonic_ms() < self._until_ms

    @property
    def is_overdue(self) -> bool:
        """Whether the last renewal is older than the lease. A `sole_broker` loses nothing by that, but its catalog
        commits nothing."""
        return not self.held or self._clock.monotonic_ms() - self._renewed_at_ms > self._lease_ms

    @property
    def is_steady(self) -> bool:
        """Whether all renewals of at least one lease duration were in time. Only then may this broker declare others
        dead: after an outage of the catalog all leases have expired, and live brokers need time to renew theirs. An
        outage that this lease has just survived may have been too long for another, so "in time" means well before the
        lease expires."""
        return self._clock.monotonic_ms() - self._steady_since_ms >= self._lease_ms

    def renewed(self, sent_at_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if not self.held or now_ms - self._renewed_at_ms > self._lease_ms * IN_TIME:
            self._steady_since_ms = now_ms
        self._renewed_at_ms = now_ms
        if not self._sole_broker:
            self._until_ms = max(self._until_ms, sent_at_ms + self._lease_ms)

    def lapse(self) -> None:
        """Another broker has declared this session dead."""
        self._sole_broker = False
        self._until_ms = -math.inf
