"""Limits the connections of each client address, before and after its clients authenticate.

Counts the connections of the Kafka and HTTP listeners together. gRPC has its own listener, which knows no addresses.
Lives on one event loop.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from millpond.model.addresses import client_address, is_loopback, network_or_host
from millpond.model.clock import Clock, SystemClock
from millpond.model.quotas import CONNECTION_CREATION_RATE
from millpond.observability.line_limit import LineLimit
from millpond.observability.metrics import QuotaMetrics
from millpond.security.quotas import LIMITS, TokenBucket

LOOPBACK_FACTOR: Final = 20
"""How much more than others this machine may do by default: many programs, or all clients of a proxy, share its
address."""
ADDRESSES_MAX: Final = 10_000
"""Maximum number of addresses whose rate is remembered; beyond it, the oldest is forgotten."""
DELAY_MS_MAX: Final = 5_000
"""A connection that would wait longer is refused: its client would give up before it is served."""
TOO_MANY: Final = "its address has too many"
TOO_FAST: Final = "its address opens them too fast"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AddressLimits:
    open_max: int = 1_000
    """Maximum number of open connections of an IPv4 address or IPv6 /64 network; 0 is unlimited."""
    per_second: int = 50
    """New connections that an address may open in a second; 0 is unlimited. More are served later, or refused. A
    quota `connection_creation_rate` replaces it."""


UNLIMITED: Final = AddressLimits(open_max=0, per_second=0)


class ClientAddresses:
    """A connection is admitted once, and counted from then until `forget`."""

    def __init__(
        self,
        limits: AddressLimits = UNLIMITED,
        clock: Clock | None = None,
        metrics: QuotaMetrics | None = None,
    ) -> None:
        self.quota_of: Callable[[str], float | None] = lambda _: None
        """The quota of an address; None if it has none."""
        self._limits = limits
        self._clock = clock or SystemClock()
        self._metrics = metrics
        self._refusal_lines = LineLimit()
        self._open: dict[str, int] = {}
        self._buckets: dict[str, TokenBucket] = {}

    def open_of(self, host: str) -> int:
        """Number of open connections of the address, connections in their handshake included."""
        return self._open.get(network_or_host(host), 0)

    def admit(self, host: str) -> int | None:
        """Count a new connection. Returns how many milliseconds it waits until it is served, or None if it is to be
        closed: its address has too many, or opens them too fast. Refused connections do not count."""
        network, factor = network_or_host(host), LOOPBACK_FACTOR if is_loopback(client_address(host)) else 1
        if 0 < self._limits.open_max * factor <= self._open.get(network, 0):
            self._refuse(host, TOO_MANY)
            return None
        delay_ms = self._delay_ms(network, factor)
        if delay_ms is None:
            self._refuse(host, TOO_FAST)
        else:
            self.count(host)
        return delay_ms

    def count(self, host: str) -> None:
        """Count a connection that was admitted before, when its handshake began."""
        network = network_or_host(host)
        self._open[network] = self._open.get(network, 0) + 1

    def forget(self, host: str) -> None:
        """The connection, or its handshake, has ended."""
        network = network_or_host(host)
        left = self._open.get(network, 0) - 1
        if left > 0:
            self._open[network] = left
        else:
            self._open.pop(network, None)

    def _delay_ms(self, network: str, factor: int) -> int | None:
        """None if the delay would be too long."""
        rate = self.quota_of(network) or self._limits.per_second * factor
        if rate == 0:
            return 0
        now_ms = self._clock.monotonic_ms()
        bucket = self._buckets.get(network)
        if bucket is None or bucket.rate != rate:
            if len(self._buckets) >= ADDRESSES_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[network] = TokenBucket(rate, now_ms, LIMITS[CONNECTION_CREATION_RATE])
        if bucket.delay_ms(now_ms) > DELAY_MS_MAX:
            return None
        delay_ms = bucket.charge(1, now_ms)
        if delay_ms > 0 and self._metrics is not None:
            self._metrics.throttled(CONNECTION_CREATION_RATE, delay_ms)
        return delay_ms

    def _refuse(self, host: str, reason: str) -> None:
        if self._metrics is not None:
            self._metrics.refused_connections.inc()
        if self._refusal_lines.admits():
            unlogged = self._refusal_lines.take_unlogged()
            logger.info("connection refused", extra={"client": host, "reason": reason, "unlogged": unlogged})
