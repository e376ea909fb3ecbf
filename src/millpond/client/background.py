"""One event loop in a background thread, for the clients of this process that have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

from millpond.client import forks
from millpond.model.errors import MillpondError

T = TypeVar("T")


class Background:
    """The one loop of this process, created when it is first needed."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            with self._starting:  # several threads may get here at the same time
                self._loop = self._loop or self._started()
        return self._loop

    def _started(self) -> asyncio.AbstractEventLoop:
        loop = uvloop.new_event_loop()
        threading.Thread(target=loop.run_forever, name="millpond-client", daemon=True).start()
        return loop


background = Background()


def run(call: Coroutine[Any, Any, T]) -> T:
    """Run a call on the background loop and wait for its result. If the caller is interrupted while waiting
    (Ctrl-C), the call is cancelled."""
    try:
        forks.check()
        future = asyncio.run_coroutine_threadsafe(call, background.loop())
    except MillpondError:
        call.close()
        raise
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


async def on_background_loop(make: Callable[[], T]) -> T:
    return make()
