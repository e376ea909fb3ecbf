"""The lower bound for every durable broker: the same bytes, written to one file and synced, without a broker."""

import os
import time
from pathlib import Path

CHUNK_BYTES = 1_000_000


def write_and_sync(folder: Path, megabytes: float) -> float:
    """MB/s of plain write + fdatasync, with one fdatasync per megabyte."""
    data = os.urandom(CHUNK_BYTES)
    path = folder / "plain"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    chunks = max(int(megabytes * 1e6 / CHUNK_BYTES), 1)
    begun = time.perf_counter()
    try:
        for _ in range(chunks):
            os.write(descriptor, data)
            os.fdatasync(descriptor)
        return chunks * CHUNK_BYTES / 1e6 / (time.perf_counter() - begun)
    finally:
        os.close(descriptor)
        path.unlink()


def sync_latencies(folder: Path, count: int) -> list[float]:
    """Durations of one write of 1,000 bytes + fdatasync, in seconds."""
    data = os.urandom(1000)
    path = folder / "plain"
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    samples = []
    try:
        for _ in range(count):
            begun = time.perf_counter()
            os.write(descriptor, data)
            os.fdatasync(descriptor)
            samples.append(time.perf_counter() - begun)
        return samples
    finally:
        os.close(descriptor)
        path.unlink()
