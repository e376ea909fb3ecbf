"""Limits the bytes that clients produce and consume on this broker, by the stored quotas.

A client that exceeds its rate is served, and then waits until its average is within the quota again. Lives on one event
loop; connections of the same user or client id share a `TokenBucket`.
"""

from collections.abc import Sequence
from typing import Final

from millpond.model.clock import Clock
from millpond.model.principals import USER, Principal
from millpond.model.quotas import ClientQuota, QuotaEntity, entities_of

BURST_S: Final = 1
"""A client that was idle may transfer what its rate allows in this time at once."""
DELAY_S_MAX: Final = 60
"""Maximum time that a client waits for one request, however large it was."""
BUCKETS_MAX: Final = 10_000
CLIENTS_MAX: Final = 10_000
"""Beyond it, the buckets of clients are looked up again."""


class TokenBucket:
    """Bytes that may be transferred now; negative after a transfer that was larger."""

    def __init__(self, rate: float, now_ms: int) -> None:
        self.rate = rate
        self.capacity = rate * BURST_S
        self._level = self.capacity
        self._updated_at_ms = now_ms

    def charge(self, amount: int, now_ms: int) -> int:
        """Count a transfer. Returns how many milliseconds its client waits before its next request."""
        self._refill(now_ms)
        self._level = max(self._level - amount, -self.rate * DELAY_S_MAX)
        return self._delay_ms()

    def delay_ms(self, now_ms: int) -> int:
        """How many milliseconds pass until something may be transferred."""
        self._refill(now_ms)
        return self._delay_ms()

    def _refill(self, now_ms: int) -> None:
        passed_s = max(0, now_ms - self._updated_at_ms) / 1000
        self._level = min(self.capacity, self._level + passed_s * self.rate)
        self._updated_at_ms = now_ms

    def _delay_ms(self) -> int:
        """Rounded up: at the end of the delay the level is not negative."""
        return 0 if self._level >= 0 else int(-self._level * 1000 / self.rate) + 1


class QuotaLimiter:
    def __init__(self, clock: Clock) -> None:
        self.stored: tuple[ClientQuota, ...] = ()
        self.is_active = False
        """False while there are no quotas, so that a request costs one look at this attribute."""
        self._clock = clock
        self._values: dict[tuple[QuotaEntity, str], float] = {}
        self._buckets: dict[tuple[str, QuotaEntity], TokenBucket] = {}
        self._found: dict[tuple[str, Principal, str], TokenBucket | None] = {}

    def apply(self, quotas: Sequence[ClientQuota]) -> None:
        """Replace all quotas. A rate that stays keeps its bucket, and what clients have used of it."""
        if self.stored == tuple(quotas):
            return
        self.stored = tuple(quotas)
        self._values = {(each.entity, each.key): each.value for each in quotas}
        self._found = {}
        self.is_active = bool(quotas)

    def charge(self, key: str, principal: Principal, client_id: str, amount: int) -> int:
        """Count a transfer. Returns how many milliseconds the client waits before its next request."""
        bucket = self.bucket(key, principal, client_id)
        return 0 if bucket is None else bucket.charge(amount, self._clock.monotonic_ms())

    def delay_ms(self, key: str, principal: Principal, client_id: str) -> int:
        """How many milliseconds pass until the client may transfer something."""
        bucket = self.bucket(key, principal, client_id)
        return 0 if bucket is None else bucket.delay_ms(self._clock.monotonic_ms())

    def bucket(self, key: str, principal: Principal, client_id: str) -> TokenBucket | None:
        """None if no quota limits this client. Brokers have no quotas."""
        client = (key, principal, client_id)
        if client not in self._found:
            if len(self._found) >= CLIENTS_MAX:
                self._found.clear()
            self._found[client] = self._find(key, principal, client_id)
        return self._found[client]

    def _find(self, key: str, principal: Principal, client_id: str) -> TokenBucket | None:
        if principal.kind != USER:
            return None
        for entity in entities_of(principal.name, client_id):
            if (rate := self._values.get((entity, key))) is not None:
                limited = QuotaEntity(
                    None if entity.user is None else principal.name,
                    None if entity.client_id is None else client_id,
                )
                return self._bucket_of(key, limited, rate)
        return None

    def _bucket_of(self, key: str, limited: QuotaEntity, rate: float) -> TokenBucket:
        found = self._buckets.get((key, limited))
        if found is None or found.rate != rate:
            if len(self._buckets) >= BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]
            found = self._buckets[key, limited] = TokenBucket(rate, self._clock.monotonic_ms())
        return found
