"""Time travel: a clock that goes as time does and can be sent ahead, and what a broker does about the time between."""

from millpond.broker import Broker
from millpond.maintenance.payloads import PayloadCollector
from millpond.model.clock import SystemClock


class TravellingClock:
    """The system's clock, ahead by as much as it was advanced."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return self._system.now_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return self._system.monotonic_ms() + self._ahead_ms

    def advance(self, milliseconds: int) -> None:
        self._ahead_ms += milliseconds


async def travel(broker: Broker, clock: TravellingClock, milliseconds: int) -> None:
    """Move the broker's clock and let everything happen that is due by then. Groups from before a restart are read
    first, or the time would not pass for their members."""
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
    """The broker's own collector goes through all of them a few times a day only."""
    limits = broker.settings.maintenance_limits()
    collector = PayloadCollector(
        broker.log,
        broker.store,
        broker.clock,
        broker.maintenance.guard,
        age_ms=limits.payload_age_ms,
        bytes_per_second=limits.payload_bytes_per_second,
    )
    await collector.run_once()
