"""Applies the quotas of a client to its HTTP requests and gRPC calls, as Kafka does: what exceeds a quota is served,
and the next request is refused until the average is within the quota again. Streams are not refused; they wait.

These clients have no client id.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from millpond.model.errors import QuotaExceeded
from millpond.model.quotas import CONTROLLER_MUTATION_RATE
from millpond.security.access import Access

NO_CLIENT_ID: Final = ""


def check(access: Access, quota: str) -> None:
    """Call it before a request is carried out. Raises `QuotaExceeded`."""
    if access.quotas.is_active:
        delay_ms = access.quotas.delay_ms(quota, access.principal, NO_CLIENT_ID)
        if delay_ms > 0:
            raise QuotaExceeded(quota=quota, retry_after_ms=delay_ms)


def charge(access: Access, quota: str, amount: int) -> int:
    """Count a use. Returns how many milliseconds a stream waits before it continues."""
    if not access.quotas.is_active:
        return 0
    return access.quotas.charge(quota, access.principal, NO_CLIENT_ID, amount)


def charge_mutations(access: Access, partitions: int) -> None:
    """Call it before partitions are created or deleted. Raises `QuotaExceeded`."""
    check(access, CONTROLLER_MUTATION_RATE)
    charge(access, CONTROLLER_MUTATION_RATE, partitions)


def response_bytes_max(access: Access, asked: int) -> int:
    """Maximum size of the next response with messages."""
    if not access.quotas.is_active:
        return asked
    limit = access.quotas.response_bytes_max(access.principal, NO_CLIENT_ID)
    return asked if limit is None else min(asked, limit)


class QuotaPacer:
    """Slows streams down. `stop` ends all waits, so that a broker that stops does not wait for them."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def until_allowed(self, access: Access, quota: str) -> None:
        """Returns when the client is within its quota."""
        if access.quotas.is_active:
            await self._wait(access.quotas.delay_ms(quota, access.principal, NO_CLIENT_ID))

    async def transferred(self, access: Access, quota: str, size: int) -> None:
        """Count a part of a stream, and return when the next one may be transferred."""
        await self._wait(charge(access, quota, size))

    async def paced(
        self, parts: AsyncIterator[bytes], access: Access, quota: str
    ) -> AsyncGenerator[bytes, None]:
        """Yields the parts of a stream, at the rate of the quota."""
        try:
            await self.until_allowed(access, quota)
            async for part in parts:
                yield part
                await self.transferred(access, quota, len(part))
        finally:
            if isinstance(parts, AsyncGenerator):
                await parts.aclose()

    async def _wait(self, delay_ms: int) -> None:
        if delay_ms > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_ms / 1000):
                    await self._stopped.wait()
