"""What the parts of a broker do before and after partitions or coordinator shards move to another broker."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from millpond.model.errors import Unavailable
from millpond.model.placement import Unit

Held = TypeVar("Held", contravariant=True)


class Holder(Protocol[Held]):
    """A part of a broker that works on partitions, or on coordinator shards."""

    async def prepare_handover(self, units: Sequence[Held], /) -> None:
        """Stop the work on these, and return when nothing is in flight. This broker owns them until the handover is
        committed."""

    def end_handover(self, units: Sequence[Held], /) -> None:
        """The handover has completed or failed: continue with those that this broker still owns. Also called if
        `prepare_handover` failed or was not called."""


@asynccontextmanager
async def prepared(
    holders: Sequence[Holder[Unit]], units: Sequence[Unit], timeout_s: float | None = None
) -> AsyncIterator[None]:
    """Runs the body while no holder works on the units. Holders are prepared in the given order, and end the handover
    in reverse order. Raises `Unavailable` if they are not prepared in time."""
    try:
        try:
            async with asyncio.timeout(timeout_s):
                for holder in holders:
                    await holder.prepare_handover(units)
        except TimeoutError:
            if timeout_s is None:
                raise
            reason = f"{len(units)} partitions still had work in flight after {timeout_s:g} s"
            raise Unavailable(reason) from None
        yield
    finally:
        for holder in reversed(holders):
            holder.end_handover(units)
