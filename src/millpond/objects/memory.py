"""Objects in a dictionary: for tests, and for brokers whose messages need not outlive the process."""

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence

from millpond.model.buffers import Buffer
from millpond.model.errors import CorruptObject, ObjectExists, ObjectMissing, StoreUnavailable
from millpond.model.extents import Location
from millpond.model.ids import Session
from millpond.objects.store import Method, check_expiry, check_key, check_prefix, check_range, total_length
from millpond.segments.keys import journal_key


class MemoryStore:
    """Volatile. Each append is a separate object, so no object is ever open."""

    appends_are_uploads = False
    reads_at_once = 1

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._sequences = itertools.count()
        self._objects: dict[str, bytes] = {}
        self._closed = False

    def append(self, parts: Sequence[Buffer]) -> Location:
        length = total_length(parts)
        with self._lock:
            self._refuse_if_closed()
            key = journal_key(self._session, next(self._sequences))
            self._objects[key] = b"".join(parts)
        return Location(key, 0, length)

    def is_open(self, key: str) -> bool:
        check_key(key)
        return False

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        check_key(key)
        total_length(parts)
        with self._lock:
            self._refuse_if_closed()
            if key in self._objects:
                raise ObjectExists(key=key)
            self._objects[key] = b"".join(parts)

    def read(self, key: str, start: int, length: int) -> memoryview:
        check_range(start, length)
        data = self._get(key)
        if start + length > len(data):
            raise CorruptObject(key=key, position=len(data), reason=f"{length} bytes from {start} were asked")
        return memoryview(bytearray(memoryview(data)[start : start + length]))

    def list(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        with self._lock:
            keys = sorted(key for key in self._objects if key.startswith(prefix))
        return iter(keys)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            check_key(key)
            with self._lock:
                self._objects.pop(key, None)

    def size(self, key: str) -> int:
        return len(self._get(key))

    def copy(self, key: str, new_key: str) -> None:
        self.put(new_key, [self._get(key)])

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        check_key(key)
        check_expiry(expires_s)
        return None

    def close(self) -> None:
        self._closed = True

    def _get(self, key: str) -> bytes:
        check_key(key)
        with self._lock:
            data = self._objects.get(key)
        if data is None:
            raise ObjectMissing(key=key)
        return data

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(reason="it is closed")
