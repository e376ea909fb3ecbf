"""A way between two processes that can be cut: a TCP proxy in a thread of its own.

What is held is not lost, as packets are not that TCP sends again: when the way is free it arrives. Held one way only,
requests take effect and are not answered.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

CHUNK_BYTES = 64 * 1024
CALL_SECONDS_MAX = 10.0
TURNS_TO_CLOSE = 10
"""Of the loop, so that it lets its sockets go, and hears of those whom it has just let in."""
Target = tuple[str, int] | str
"""A host and a port, or the path of a unix socket."""


class Proxy:
    """`address` is where the others are reached through it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._forth = asyncio.Event()
        self._back = asyncio.Event()
        self._refuses = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: weakref.WeakSet[asyncio.WriteTransport] = weakref.WeakSet()
        """Those that are closed and still have something to write, too."""
        self._thread.start()
        self._server: asyncio.Server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.heal()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    # -- faults -----------------------------------------------------------------------------------------------

    def heal(self) -> None:
        self._run(lambda: self._set(forth=True, back=True))

    def silence(self) -> None:
        """Nothing passes, and nobody is told."""
        self._run(lambda: self._set(forth=False, back=False))

    def hold_answers(self) -> None:
        """What is asked arrives; answers do not."""
        self._run(lambda: self._set(forth=True, back=False))

    def refuse(self) -> None:
        """Connections are closed, and so are new ones."""
        self._run(self._cut)

    def _set(self, *, forth: bool, back: bool) -> None:
        self._refuses = False
        for event, is_open in ((self._forth, forth), (self._back, back)):
            if is_open:
                event.set()
            else:
                event.clear()

    def _cut(self) -> None:
        self._refuses = True
        for task in self._tasks:
            task.cancel()

    # -- passing on -------------------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs in one"
        self._tasks.add(task)
        self._transports.add(writer.transport)
        try:
            if not self._refuses:
                await self._forth.wait()  # a connection is not made either
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._close(writer)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await self._connect()
        self._transports.add(there_writer.transport)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(_pass_on(reader, there_writer, self._forth))
                ways.create_task(_pass_on(there_reader, writer, self._back))
        except* OSError:
            pass
        finally:
            self._close(there_writer)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        """What is written already still arrives, unless the way is cut."""
        if self._refuses:
            writer.transport.abort()
        else:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.target, str):
            return await asyncio.open_unix_connection(self.target)
        return await asyncio.open_connection(*self.target)

    # -- its thread -------------------------------------------------------------------------------------------

    def _run(self, function: Callable[[], None]) -> None:
        async def run() -> None:
            function()

        self._call(run())

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS_MAX)

    def close(self) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_SECONDS_MAX)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for _ in range(TURNS_TO_CLOSE):
            self._cut()
            for transport in list(self._transports):
                transport.abort()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0.005)


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, may_pass: asyncio.Event
) -> None:
    try:
        while data := await reader.read(CHUNK_BYTES):
            await may_pass.wait()
            writer.write(data)
            await writer.drain()
    finally:
        with contextlib.suppress(OSError):
            writer.close()


@contextmanager
def proxy_to(target: Target) -> Iterator[Proxy]:
    proxy = Proxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
