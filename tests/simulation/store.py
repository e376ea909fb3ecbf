"""One object store for all, each broker's way to it as bad as the story wants. An append is an upload, as on S3."""

import itertools
from collections.abc import Iterable, Iterator, Sequence

from tests.simulation.catalog import Weather
from tests.simulation.loop import World

from millpond.model.buffers import Buffer
from millpond.model.errors import ObjectExists, StoreUnavailable
from millpond.model.extents import Location
from millpond.model.ids import Session
from millpond.objects.memory import MemoryStore
from millpond.objects.store import Method, total_length
from millpond.segments.keys import journal_key

LATE_S = 20.0
"""A PUT that its broker has given up may still arrive so much later."""


class BrokersStore:
    """The shared store as one life of one broker reaches it."""

    def __init__(
        self,
        world: World,
        shared: MemoryStore,
        session: Session,
        weather: Weather,
        counts: dict[str, int],
        *,
        uploads: bool,
    ) -> None:
        self.appends_are_uploads = uploads
        self.reads_at_once = 1  # threads would not be deterministic
        self._world = world
        self._shared = shared
        self._session = session
        self._weather = weather
        self._counts = counts
        self._sequences = itertools.count()
        self._closed = False

    def append(self, parts: Sequence[Buffer]) -> Location:
        key = journal_key(self._session, next(self._sequences))
        self.put(key, parts)
        return Location(key, 0, total_length(parts))

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        if self._closed or self._weather.cut or self._chance(self._weather.refuse):
            self._count("PUTs refused")
            raise StoreUnavailable(reason="simulated: no way to the store")
        if not self._chance(self._weather.lose):
            self._count("PUTs")
            self._shared.put(key, parts)
            return
        body = b"".join(parts)
        if self._chance(0.5):
            self._count("PUTs applied and not answered")
            self._shared.put(key, [body])
        else:
            self._count("PUTs that arrive after they were given up")
            self._world.network.call_later(
                self._world.random.uniform(0, LATE_S), self._arrive_late, key, body
            )
        raise StoreUnavailable(reason="simulated: the answer was lost")

    def _arrive_late(self, key: str, body: bytes) -> None:
        try:
            self._shared.put(key, [body])
        except ObjectExists:
            return

    def is_open(self, key: str) -> bool:
        return self._shared.is_open(key)

    def read(self, key: str, start: int, length: int) -> memoryview:
        self._refuse_reads()
        return self._shared.read(key, start, length)

    def list(self, prefix: str) -> Iterator[str]:
        self._refuse_reads()
        return self._shared.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self._refuse_reads()
        self._shared.delete(keys)

    def size(self, key: str) -> int:
        self._refuse_reads()
        return self._shared.size(key)

    def copy(self, key: str, new_key: str) -> None:
        self._refuse_reads()
        self._shared.copy(key, new_key)

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        return self._shared.signed_url(key, method, expires_s)

    def close(self) -> None:
        self._closed = True

    def _refuse_reads(self) -> None:
        if self._closed or self._weather.cut or self._chance(self._weather.refuse):
            raise StoreUnavailable(reason="simulated: no way to the store")

    def _count(self, name: str) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1

    def _chance(self, share: float) -> bool:
        return share > 0 and self._world.random.random() < share
