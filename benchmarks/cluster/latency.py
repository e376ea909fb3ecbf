"""One record in flight on PostgreSQL and S3, with every PUT 100 ms slower: through the catalog, and through
the store."""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import uvloop

from benchmarks.cluster.servers import Place, on_servers
from benchmarks.engine.setup import folder
from benchmarks.report import Report, quantiles_ms
from millpond import Broker, Record, Settings
from millpond.model.extents import Location
from millpond.objects.store import ObjectStore
from millpond.records import Buffer, build_batch

PUT_S = 0.1
SAMPLES, QUICK_SAMPLES = 2_000, 200
STORED_SAMPLES = 20


class SlowPuts:
    """Adds 100 ms to every PUT."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def append(self, parts: Sequence[Buffer]) -> Location:
        time.sleep(PUT_S)
        return self._store.append(parts)

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        time.sleep(PUT_S)
        self._store.put(key, parts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def run(report: Report, *, quick: bool) -> None:
    report.section(
        "One record in flight on PostgreSQL and S3",
        "A kilobyte at a time, every PUT 100 ms slower; beside one bare UPDATE and COMMIT on the same PostgreSQL, "
        "in turns.",
    )
    with folder("disk") as path, on_servers(path / "latency") as place:
        report.table(
            ("way", "samples", "p50 / p99 ms"),
            uvloop.run(_measure(place, QUICK_SAMPLES if quick else SAMPLES)),
        )


async def _measure(place: Place, samples: int) -> list[tuple[object, ...]]:
    import os

    os.environ.update(place.environment)
    batch = bytes(build_batch([Record(os.urandom(1_000))], now_ms=time.time_ns() // 1_000_000))
    with psycopg.connect(place.catalog, autocommit=True) as bare:
        bare.execute("CREATE TABLE bare (value bigint)")
        bare.execute("INSERT INTO bare VALUES (0)")
        inline, commits = await _through(
            place, batch, samples, lambda: bare.execute("UPDATE bare SET value = value + 1")
        )
    stored, _ = await _through(place, batch, STORED_SAMPLES, lambda: None, inline_bytes_max=0)
    return [
        ("in the catalog's commit", len(inline), _shown(inline)),
        ("through the store (waits for company up to 250 ms)", len(stored), _shown(stored)),
        ("bare commit", len(commits), _shown(commits)),
    ]


async def _through(
    place: Place, batch: bytes, samples: int, between: Callable[[], object], **settings: Any
) -> tuple[list[float], list[float]]:
    chosen = Settings(catalog=place.catalog, storage=place.store, **settings)
    ours, others = [], []
    async with Broker(chosen, wrap_store=lambda store: SlowPuts(store)) as broker:  # a Protocol
        await broker.produce(topic := f"latency-{uuid.uuid4().hex}", b"first")
        topic_partition = broker.log.topics.partition(topic, 0)
        for _ in range(samples):
            ours.append(await _timed(broker.log.append(topic_partition, batch)))
            started = time.perf_counter()
            between()
            others.append(time.perf_counter() - started)
    return ours, others


async def _timed(awaitable: Any) -> float:
    started = time.perf_counter()
    await awaitable
    return time.perf_counter() - started


def _shown(samples: list[float]) -> str:
    p50, p99 = quantiles_ms(samples)
    return f"{p50:.2f} / {p99:.2f}"
