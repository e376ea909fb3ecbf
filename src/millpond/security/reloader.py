"""Replaces the certificate of the listeners when its files change, or when an operator asks for it."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

LOOK_INTERVAL_S: Final = 10.0
"""Interval at which the files are compared with what was loaded."""


class ReloadableTls(Protocol):
    def reload(self) -> bool: ...
    def reload_if_changed(self) -> bool: ...

    def take_refusal(self) -> str:
        """Why the last files were refused, if it was not taken before; empty otherwise."""


class TlsReloader:
    """Looks at the files every `interval_s`, and at once after `request`. Reads them on a thread. Calls `on_reload`
    when a new certificate is in use, and `on_refusal` with the reason when one cannot be used."""

    def __init__(
        self,
        tls: ReloadableTls,
        *,
        interval_s: float = LOOK_INTERVAL_S,
        on_reload: Callable[[], None] = lambda: None,
        on_refusal: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tls = tls
        self._on_reload = on_reload
        self._on_refusal = on_refusal
        self._interval_s = interval_s
        self._requested = asyncio.Event()

    def request(self) -> None:
        """Reload soon, even if the files have not changed, and log the result."""
        self._requested.set()

    async def run(self) -> None:
        while True:
            await self.wait()
            requested = self._requested.is_set()
            self._requested.clear()
            if await asyncio.to_thread(self._tls.reload if requested else self._tls.reload_if_changed):
                self._on_reload()
            elif refusal := self._tls.take_refusal():
                self._on_refusal(refusal)

    async def wait(self) -> None:
        """Until the next look."""
        try:
            async with asyncio.timeout(self._interval_s):
                await self._requested.wait()
        except TimeoutError:
            pass
