"""The threads of requests to identity providers."""

import asyncio
import threading

import pytest

from millpond.security.oidc import EXCHANGES_MAX
from millpond.security.provider_threads import THREADS, ProviderThreads


async def test_requests_that_hang_hold_no_other_threads_and_do_not_delay_a_stop():
    threads, released = ProviderThreads(), threading.Event()
    hanging = [asyncio.create_task(threads.run(released.wait)) for _ in range(THREADS + 1)]
    try:
        assert await asyncio.to_thread(lambda: "done") == "done"
        threads.close()
        with pytest.raises(asyncio.CancelledError):
            await hanging[-1]  # it had no thread yet
    finally:
        released.set()
    assert await asyncio.gather(*hanging[:-1]) == THREADS * [True]


def test_every_kind_of_request_gets_a_thread():
    assert THREADS >= EXCHANGES_MAX + 3
