"""The catalog and the disk of a broker or tool, as its settings name them."""

import asyncio
from typing import Final

from millpond.catalog import open as catalog_open
from millpond.catalog.database import Database
from millpond.catalog.open import CATALOG_FILE, sqlite_path, sqlite_url
from millpond.objects.disk_reserve import Reserve, part_of_disk, space_of
from millpond.objects.open import folder_of
from millpond.observability.metrics import DiskMetrics
from millpond.settings import Settings

RESERVE_EVERY_S: Final = 0.5
"""How often the broker tries to restore the disk reserve."""


def open_database(
    settings: Settings, *, name: str = "", lock_wait_ms: int = 0, reserve: Reserve | None = None
) -> Database:
    """The catalog for a broker or tool with these settings. When its disk is full, the reserve is released."""
    on_full = (lambda: None) if reserve is None else reserve.release
    return catalog_open.open_database(
        _catalog_url(settings), name=name, lock_wait_ms=lock_wait_ms, on_full=on_full
    )


def open_reserve(settings: Settings) -> Reserve | None:
    """The disk reserve of an SQLite catalog; other catalogs need none. Does not allocate it yet."""
    path = sqlite_path(_catalog_url(settings))
    if path is None or not path.parent.is_dir():
        return None
    reserve = Reserve(path.parent, settings.disk_reserve)
    reserve.prepare()
    return reserve


def _catalog_url(settings: Settings) -> str:
    return settings.catalog or sqlite_url(settings.data_dir / CATALOG_FILE)


class BrokerDisk:
    """The disk reserve of a broker, and the space that maintenance may use."""

    def __init__(self, settings: Settings) -> None:
        self.reserve = open_reserve(settings)
        self._settings = settings

    def check_space(self) -> None:
        """Raise `StoreFull` while appends are refused because the disk is full."""
        if self.reserve is not None:
            self.reserve.check()

    def free_bytes(self) -> int | None:
        """How many bytes maintenance may write to a store of files; None for any other store. As much space
        as the disk reserve stays free."""
        folder = folder_of(self._settings.storage_url())
        if folder is None:
            return None
        if self.reserve is not None and self.reserve.is_released:
            return 0
        space = space_of(folder)
        return space.free - part_of_disk(self._settings.disk_reserve, space)

    def allocate_reserve(self, metrics: DiskMetrics) -> None:
        """Called late in the start, so that a broker that fails to start leaves no reserve behind."""
        if (reserve := self.reserve) is None:
            return
        reserve.renew()
        metrics.full.set_function(lambda: int(reserve.is_released))
        metrics.reserve_bytes.set_function(lambda: reserve.held_bytes)

    async def run(self) -> None:
        """Restore the reserve whenever it has been released and there is space again, until cancelled."""
        assert self.reserve is not None, "a broker without a reserve does not run this"
        while True:
            await asyncio.sleep(RESERVE_EVERY_S)
            await asyncio.to_thread(self.reserve.renew)
