"""A real broker in this process, for tests: in memory, or in a directory that the test provides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from millpond.broker import Broker
from millpond.model.clock import Clock
from millpond.objects.store import ObjectStore
from millpond.settings import Settings
from millpond.testing.faults import Faults, FaultyStore


@asynccontextmanager
async def running_broker(
    data_dir: Path | None = None,
    *,
    clock: Clock | None = None,
    faults: Faults | None = None,
    maintain: bool = False,
    kafka: bool = False,
    grpc: bool = False,
    http: bool = False,
    trust_clock: bool = False,
    **settings: object,
) -> AsyncIterator[Broker]:
    """Without a directory nothing is kept. `settings` are fields of `Settings`. Maintenance runs only if
    `maintain` is set, so that a test decides when messages expire, are merged and are collected. No disk
    space is reserved. With `kafka`, `grpc` or `http`, real clients can connect to `broker.listeners`, on free
    ports."""

    def with_faults(store: ObjectStore) -> ObjectStore:
        return FaultyStore(store, faults) if faults is not None else store

    places = (
        {"data_dir": data_dir} if data_dir is not None else {"catalog": "memory://", "storage": "memory://"}
    )
    interfaces = {"kafka": kafka, "grpc": grpc, "http": http}
    listening = {f"{interface}_listen": "127.0.0.1:0" if on else "" for interface, on in interfaces.items()}
    quick = {"group_initial_rebalance_delay": 0} if kafka else {}
    chosen = Settings(**{**places, **listening, **quick, "disk_reserve": 0, **settings})  # type: ignore[arg-type]  # checked by the dataclass itself
    broker = Broker(
        chosen,
        clock=clock,
        wrap_store=with_faults,
        maintain=maintain,
        listen=any(interfaces.values()),
        trust_clock=trust_clock,
    )
    async with broker:
        yield broker
