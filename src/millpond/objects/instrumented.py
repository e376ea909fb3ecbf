"""A wrapper that records metrics: calls, bytes, seconds and errors, as callers see them."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from millpond.model.buffers import Buffer
from millpond.model.errors import MillpondError, StoreUnavailable
from millpond.model.extents import Location
from millpond.objects.store import Method, ObjectStore
from millpond.observability.metrics import StoreMetrics

OPERATIONS = ("append", "put", "read", "list", "delete", "size", "copy", "sign")
UNEXPECTED = "unexpected"
"""The kind of an error that is not a `MillpondError`."""


class Instrumented:
    """Wraps any store. It is the outermost wrapper, so that an operation includes its retries."""

    def __init__(
        self, store: ObjectStore, metrics: StoreMetrics, *, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._timer = timer
        self._closed = False
        # Looking up a label costs more than counting, so each label is looked up once.
        self._operations = {name: metrics.operations.labels(name) for name in OPERATIONS}
        self._bytes = {name: metrics.bytes.labels(name) for name in ("append", "put", "read")}
        self._seconds = {name: metrics.seconds.labels(name) for name in OPERATIONS}

    @property
    def appends_are_uploads(self) -> bool:
        return self._store.appends_are_uploads

    @property
    def reads_at_once(self) -> int:
        return self._store.reads_at_once

    def append(self, parts: Sequence[Buffer]) -> Location:
        with self._measured("append"):
            location = self._store.append(parts)
        self._bytes["append"].inc(location.length)
        return location

    def is_open(self, key: str) -> bool:
        return self._store.is_open(key)

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        with self._measured("put"):
            self._store.put(key, parts)
        self._bytes["put"].inc(sum(map(len, parts)))

    def read(self, key: str, start: int, length: int) -> memoryview:
        with self._measured("read"):
            data = self._store.read(key, start, length)
        self._bytes["read"].inc(len(data))
        return data

    def list(self, prefix: str) -> Iterator[str]:
        with self._measured("list"):
            for key in self._store.list(prefix):
                self._refuse_if_closed()
                yield key

    def delete(self, keys: Iterable[str]) -> None:
        with self._measured("delete"):
            self._store.delete(keys)

    def size(self, key: str) -> int:
        with self._measured("size"):
            return self._store.size(key)

    def copy(self, key: str, new_key: str) -> None:
        with self._measured("copy"):
            self._store.copy(key, new_key)

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        with self._measured("sign"):
            return self._store.signed_url(key, method, expires_s)

    def close(self) -> None:
        """After this, every call fails, including the next step of a listing in progress and reads."""
        self._closed = True
        self._store.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(reason="it is closed")

    @contextmanager
    def _measured(self, operation: str) -> Iterator[None]:
        self._refuse_if_closed()
        started = self._timer()
        try:
            yield
        except Exception as error:
            kind = type(error).__name__ if isinstance(error, MillpondError) else UNEXPECTED
            self._metrics.errors.labels(operation, kind).inc()
            raise
        finally:
            self._operations[operation].inc()
            self._seconds[operation].observe(self._timer() - started)
