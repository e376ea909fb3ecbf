"""The event loop for brokers in tests, in a separate thread, so that a test may block or run its own loop."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


@cache
def background_loop() -> asyncio.AbstractEventLoop:
    """One loop for the process, because gRPC keeps a reference to every loop it was ever used on."""
    loop = uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="millpond-testing", daemon=True).start()
    return loop


def run_in_background(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(call, background_loop()).result()
