"""Time travel: a clock that runs like the system clock and can be advanced, and the broker's work that then
becomes due."""

from millpond.broker import Broker
from millpond.maintenance.payloads import PayloadCollector
from millpond.model.clock import SystemClock


class TravellingClock:
    """The system clock plus the time by which it was advanced."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return self._system.now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return self._system.monotonic_ms() + self._ahead_ms

    def advance(self, milliseconds: int) -> None:
        self._ahead_ms += milliseconds


async def time_travel(broker: Broker, clock: TravellingClock, milliseconds: int) -> None:
    """Advance the broker's clock and run everything that is due by then. Groups from before a restart are
    loaded first; otherwise the time would not pass for their members."""
    await broker.groups.expire_once()
    clock.advance(milliseconds)
    broker.groups.tick()
    await broker.groups.expire_once()
    await broker.transactions.abort_timed_out()
    await broker.transactions.forget_unused()
    await broker.maintenance.retention.run_now()
    await _collect_payloads(broker)
    await broker.maintenance.expire_once()
    await broker.maintenance.garbage.run_once()


async def _collect_payloads(broker: Broker) -> None:
    """Run one pass over all payloads; the broker's own collector makes only a few passes a day."""
    limits = broker.settings.maintenance_limits()
    collector = PayloadCollector(
        broker.log.upkeep,
        broker.store,
        broker.clock,
        broker.maintenance.guard,
        age_ms=limits.payload_age_ms,
        bytes_per_second=limits.payload_bytes_per_second,
    )
    await collector.run_once()
