"""Where a measurement keeps its files: on the disk, on a RAM disk, or in memory."""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from millpond import Broker, Settings, TopicPartition
from millpond.records import Record, build_batch

RAM_DISK = Path("/dev/shm")
RECORD_OVERHEAD = 12


@contextmanager
def folder(place: str) -> Iterator[Path]:
    """`disk`: the temporary directory's file system. `ram`: a RAM disk."""
    path = Path(tempfile.mkdtemp(prefix="millpond-bench-", dir=RAM_DISK if place == "ram" else None))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@asynccontextmanager
async def broker(path: Path | None, **settings: object) -> AsyncIterator[tuple[Broker, TopicPartition]]:
    """A broker with one topic of one partition; without a path everything is in memory."""
    places = {"data_dir": path} if path is not None else {"catalog": "memory://", "storage": "memory://"}
    async with Broker(Settings(**{**places, **settings}), maintain=False) as running:  # type: ignore[arg-type]
        topic = await running.log.create_topic("bench")
        yield running, TopicPartition(topic.id, 0)


def random_batches(batch_bytes: int, record_bytes: int, count: int) -> list[bytes]:
    """Distinct batches of random records, near the wanted size."""
    per_batch = max(batch_bytes // (record_bytes + RECORD_OVERHEAD), 1)
    now_ms = time.time_ns() // 1_000_000
    return [
        build_batch([Record(value=os.urandom(record_bytes)) for _ in range(per_batch)], now_ms=now_ms)
        for _ in range(count)
    ]


class PlainFile:
    """The baseline: write and fdatasync, nothing else; a new file every 64 MiB, as the store does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._written = 0
        self._descriptor = self._open()

    def append(self, parts: list[bytes]) -> None:
        self._written += sum(map(len, parts))
        if self._written > 64 * 2**20:
            os.close(self._descriptor)
            self._descriptor = self._open()
            self._written = 0
        for start in range(0, len(parts), 1024):
            os.writev(self._descriptor, parts[start : start + 1024])
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> int:
        self._number += 1
        return os.open(self._path / f"plain-{self._number}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
