"""The page of metrics. What needs the catalog is read when the page is requested, and costs nothing otherwise."""

import logging
from typing import Final

from millpond.catalog import usage
from millpond.log import CatalogRole
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError
from millpond.model.ids import Session
from millpond.model.usage import Usage
from millpond.observability.metrics import Metrics

READ_EVERY_MS: Final = 5_000
"""However often the page is requested, the catalog is read no more often than this."""

logger = logging.getLogger(__name__)


class MetricsPage:
    def __init__(self, metrics: Metrics, log: CatalogRole, session: Session, clock: Clock) -> None:
        self._metrics = metrics
        self._log = log
        self._session = session
        self._clock = clock
        self._read_at_ms: int | None = None

    async def text(self) -> bytes:
        """In Prometheus' text format. If the catalog cannot be read, its metrics are missing."""
        now_ms = self._clock.monotonic_ms()
        if self._read_at_ms is None or now_ms - self._read_at_ms >= READ_EVERY_MS:
            self._read_at_ms = now_ms
            self._metrics.usage.usage = await self._read()
        return self._metrics.expose()

    async def _read(self) -> Usage:
        try:
            return await self._log.read(lambda tx: usage.of_owner(tx, self._session))
        except MillpondError as error:
            logger.warning("reading usage for metrics failed; will retry", extra={"error": str(error)})
            return Usage()
