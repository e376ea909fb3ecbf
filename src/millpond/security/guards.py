"""Checks the rights of calls: before a call starts, at each request of a stream, and while a stream lasts.

A stream whose client loses its rights or its credential ends at its next message, and an idle one at the next sweep.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any, Final, TypeVar

from millpond.model.errors import MillpondError
from millpond.security.access import Access
from millpond.security.requirements import ReadField, Requirement, Rule

SWEEP_S: Final = 1.0
T = TypeVar("T")


class Guard:
    """The rights of one call. It remembers the resources that the requests have named."""

    def __init__(self, access: Access, rule: Rule, read: ReadField) -> None:
        self.access = access
        self._rule = rule
        self._read = read
        self._named: dict[Requirement, Sequence[str]] = {}

    def require(self, request: Any, requirements: Sequence[Requirement] | None = None) -> None:
        """Check the rights for a request: all of the rule's requirements, or the given ones. A later request that names
        no resource is about those that were named before. Raises `NotAuthorized` or `AuthenticationFailed`."""
        self.access.check_valid()
        for each in self._rule.requirements if requirements is None else requirements:
            names = each.names(request, self._read)
            if names is None:
                names = self._named.get(each, [""])  # only clients with rights on every name may name none
            each.require(self.access, names)
            if not self._rule.per_request:
                self._named[each] = names

    def check(self) -> None:
        """Check again what `require` has checked."""
        self.access.check_valid()
        for each, names in self._named.items():
            each.require(self.access, names)


class WatchedStream:
    """Interrupts a stream that waits."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._error: MillpondError | None = None
        self._waiting: asyncio.Timeout | None = None

    def sweep(self, now: float) -> None:
        if self._error is not None:
            return  # it ends already
        try:
            self._guard.check()
        except MillpondError as error:
            self._error = error
            if self._waiting is not None:
                self._waiting.reschedule(now)

    def check(self) -> None:
        if self._error is not None:
            raise self._error
        self._guard.check()

    @contextlib.asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Wraps a wait for the next message. Raises the error as soon as a sweep finds it."""
        self.check()
        try:
            async with asyncio.timeout(None) as self._waiting:
                yield
        except TimeoutError:
            self.check()  # raises, unless the stream itself has timed out
            raise
        finally:
            self._waiting = None


class Guards:
    """The streams in progress. Lives on one event loop."""

    def __init__(self) -> None:
        self._streams: set[WatchedStream] = set()

    def sweep(self) -> None:
        """End the streams of clients that have lost their rights or their credential."""
        now = asyncio.get_running_loop().time()
        for stream in list(self._streams):
            stream.sweep(now)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep()

    async def while_allowed(self, stream: AsyncIterator[T], guard: Guard) -> AsyncGenerator[T, None]:
        """Yields what the stream yields, as long as the client has its rights. Then raises why not."""
        with self._watching(guard) as watched:
            try:
                while True:
                    async with watched.waiting():
                        try:
                            each = await anext(stream)
                        except StopAsyncIteration:
                            return
                    watched.check()
                    yield each
            finally:
                if isinstance(stream, AsyncGenerator):
                    await stream.aclose()

    @contextlib.contextmanager
    def _watching(self, guard: Guard) -> Iterator[WatchedStream]:
        watched = WatchedStream(guard)
        self._streams.add(watched)
        try:
            yield watched
        finally:
            self._streams.discard(watched)
