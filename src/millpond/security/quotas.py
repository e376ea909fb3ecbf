"""Limits the rates of clients on this broker by the stored quotas: bytes, requests, and changes of topics.

A client that exceeds its rate is served, and then waits until its average is within the quota again. Lives on one event
loop; connections of the same user or client id share a `TokenBucket`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from millpond.model.addresses import network_of
from millpond.model.clock import Clock
from millpond.model.principals import USER, Principal
from millpond.model.quotas import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    EVERY_NAME,
    NAME_CHARACTERS_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    VALUE_MAX,
    ClientQuota,
    QuotaEntity,
    entities_of,
)
from millpond.observability.metrics import QuotaMetrics

BUCKETS_MAX: Final = 10_000
"""Beyond it, new client ids of a user share the bucket of clients without a client id until others are forgotten."""
SWEEP_EVERY_MS: Final = 1_000
NO_CLIENT_ID: Final = ""
CLIENTS_MAX: Final = 10_000
"""Beyond it, the buckets of clients are looked up again."""
BYTES_PER_REQUEST_S: Final = 10
"""One response has at most what a consumer's rate allows in this time, but at least one batch."""


class BucketLimits(NamedTuple):
    burst_s: float = 1
    """A client that was idle may use what its rate allows in this time at once."""
    delay_s_max: float = 60
    """Maximum time that a client waits for one request, however much it used."""


LIMITS: Final[Mapping[str, BucketLimits]] = {
    PRODUCER_BYTE_RATE: BucketLimits(),
    CONSUMER_BYTE_RATE: BucketLimits(),
    REQUEST_PERCENTAGE: BucketLimits(delay_s_max=1),
    CONTROLLER_MUTATION_RATE: BucketLimits(burst_s=10),
    CONNECTION_CREATION_RATE: BucketLimits(),
}


class TokenBucket:
    """How much may be used now, in the unit of the quota; negative after a use that was larger."""

    def __init__(self, rate: float, now_ms: int, limits: BucketLimits | None = None) -> None:
        self.rate = rate
        self._limits = limits or BucketLimits()
        self._capacity = rate * self._limits.burst_s
        self._level = self._capacity
        self._updated_at_ms = now_ms

    def charge(self, amount: float, now_ms: int) -> int:
        """Count a use. Returns how many milliseconds its client waits before its next request."""
        self._refill(now_ms)
        self._level = max(self._level - amount, -self.rate * self._limits.delay_s_max)
        return self._delay_ms()

    def delay_ms(self, now_ms: int) -> int:
        """How many milliseconds pass until something may be used."""
        self._refill(now_ms)
        return self._delay_ms()

    def is_full(self, now_ms: int) -> bool:
        """Whether a new bucket would allow no more than this one."""
        self._refill(now_ms)
        return self._level >= self._capacity

    def _refill(self, now_ms: int) -> None:
        passed_s = max(0, now_ms - self._updated_at_ms) / 1000
        self._level = min(self._capacity, self._level + passed_s * self.rate)
        self._updated_at_ms = now_ms

    def _delay_ms(self) -> int:
        """Rounded up: at the end of the delay the level is not negative."""
        return 0 if self._level >= 0 else int(-self._level * 1000 / self.rate) + 1


class QuotaLimiter:
    def __init__(self, clock: Clock, metrics: QuotaMetrics | None = None) -> None:
        self.stored: tuple[ClientQuota, ...] = ()
        self.is_active = False
        """False while no user and no client id has a quota, so that a request costs one look at this attribute."""
        self.measures_requests = False
        """Whether any client is limited by the time of its requests."""
        self._clock = clock
        self._metrics = metrics
        self._values: dict[tuple[QuotaEntity, str], float] = {}
        self._connection_rates: dict[str, float] = {}
        self._buckets: dict[tuple[str, QuotaEntity], TokenBucket] = {}
        self._found: dict[tuple[str, Principal, str], TokenBucket | None] = {}
        self._swept_at_ms = -SWEEP_EVERY_MS

    def apply(self, quotas: Sequence[ClientQuota]) -> None:
        """Replace all quotas. A rate that stays keeps its bucket, and what clients have used of it."""
        if self.stored == tuple(quotas):
            return
        self.stored = tuple(quotas)
        self._values = {
            (each.entity, each.key): min(each.value, VALUE_MAX) for each in quotas if each.key in CLIENT_KEYS
        }
        self._connection_rates = _by_network(quotas)
        self._found = {}
        self.is_active = bool(self._values)
        self.measures_requests = any(key == REQUEST_PERCENTAGE for _, key in self._values)

    def charge(self, key: str, principal: Principal, client_id: str, amount: float) -> int:
        """Count a use. Returns how many milliseconds the client waits before its next request."""
        bucket = self.bucket(key, principal, client_id)
        if bucket is None:
            return 0
        return self._counted(key, bucket.charge(amount, self._clock.monotonic_ms()))

    def delay_ms(self, key: str, principal: Principal, client_id: str) -> int:
        """How many milliseconds pass until the client may use something. Ask before work that is refused meanwhile."""
        bucket = self.bucket(key, principal, client_id)
        return 0 if bucket is None else self._counted(key, bucket.delay_ms(self._clock.monotonic_ms()))

    def response_bytes_max(self, principal: Principal, client_id: str) -> int | None:
        """Maximum size of one response with messages; None if no quota limits the client."""
        bucket = self.bucket(CONSUMER_BYTE_RATE, principal, client_id)
        return None if bucket is None else int(bucket.rate * BYTES_PER_REQUEST_S)

    def connection_rate(self, network: str) -> float | None:
        """The quota of an address (`network_of`), or of every address; None if there is none."""
        rates = self._connection_rates
        return rates.get(network, rates.get(EVERY_NAME)) if rates else None

    def bucket(self, key: str, principal: Principal, client_id: str) -> TokenBucket | None:
        """None if no quota limits this client. Brokers have no quotas. A client id that is too long for a quota counts
        as none, so that it takes no memory."""
        if len(client_id) > NAME_CHARACTERS_MAX:
            client_id = NO_CLIENT_ID
        client = (key, principal, client_id)
        if client not in self._found:
            if len(self._found) >= CLIENTS_MAX:
                self._found.clear()
            self._found[client] = self._find(key, principal, client_id)
        return self._found[client]

    def _counted(self, key: str, delay_ms: int) -> int:
        if delay_ms > 0 and self._metrics is not None:
            self._metrics.throttled(key, delay_ms)
        return delay_ms

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
        if found is None and not self._has_room() and limited.client_id is not None:
            limited = limited._replace(client_id=NO_CLIENT_ID)
            found = self._buckets.get((key, limited))
        if found is None or found.rate != rate:
            found = TokenBucket(rate, self._clock.monotonic_ms(), LIMITS[key])
            self._buckets[key, limited] = found
        return found

    def _has_room(self) -> bool:
        """Forgets buckets that are full, and no others: a client with a new name must not end the delay of another."""
        now_ms = self._clock.monotonic_ms()
        if len(self._buckets) >= BUCKETS_MAX and now_ms - self._swept_at_ms >= SWEEP_EVERY_MS:
            self._swept_at_ms = now_ms
            self._buckets = {name: each for name, each in self._buckets.items() if not each.is_full(now_ms)}
            self._found.clear()
        return len(self._buckets) < BUCKETS_MAX


def _by_network(quotas: Sequence[ClientQuota]) -> dict[str, float]:
    """The rates of addresses. Those of one IPv6 network are counted together, and the lowest of their rates applies."""
    found: dict[str, float] = {}
    for each in quotas:
        if each.entity.ip is not None:
            network = each.entity.ip and network_of(each.entity.ip)
            found[network] = min(each.value, VALUE_MAX, found.get(network, VALUE_MAX))
    return found
