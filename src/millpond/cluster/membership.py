"""A broker's place in the catalog: its session is registered, kept alive by a heartbeat, and given up at the end.

A broker that holds the data directory's lock, or the only one of its catalog, takes every partition when it joins;
raising their epochs fences whoever owned them before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from millpond.catalog import coordinators, partitions, writers
from millpond.catalog.commits import Operation
from millpond.catalog.database import Database
from millpond.catalog.schema import COORDINATOR_SHARDS
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError
from millpond.model.ids import Session

HEARTBEATS_PER_LEASE = 3

logger = logging.getLogger(__name__)


def join(
    database: Database, session: Session, *, address: str, lease_ms: int, clock: Clock, alone: bool
) -> dict[int, int]:
    """Register and take over. `alone` says that no other broker can be running on this catalog. Returns the
    epochs of the coordinator shards."""
    wall_ms = clock.now_ms()
    with database.write() as tx:
        writers.register(tx, session, kind="broker", address=address, lease_ms=lease_ms, wall_ms=wall_ms)
        if alone:
            writers.bury_other_brokers(tx, session, clock.now_ms())
        writers.bury_expired(tx, session, clock.now_ms())
        shards = coordinators.claim(tx, range(COORDINATOR_SHARDS), session)
        partitions.claim_all(tx, session)
    return shards


def leave(database: Database, session: Session, *, clock: Clock) -> None:
    """The last act: nothing of this session can be committed from here on."""
    with database.write() as tx:
        writers.bury(tx, session, clock.now_ms())


class Heartbeat:
    """Renews the lease through the commit queue, so that it also proves that commits still work."""

    def __init__(self, write: Callable[[Operation], Awaitable[Any]], session: Session, lease_ms: int) -> None:
        self._write = write
        self._session = session
        self._lease_ms = lease_ms

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / HEARTBEATS_PER_LEASE / 1000)
            try:
                await self._write(lambda tx: writers.renew(tx, self._session, self._lease_ms))
            except MillpondError as error:
                logger.warning("the heartbeat failed: %s", error)
