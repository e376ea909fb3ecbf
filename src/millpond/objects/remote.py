"""Objects in S3, Google Cloud Storage or Azure, through obstore (the `s3` extra).

Every write is one PUT that creates or fails (`If-None-Match: *`), so an object is never overwritten, not even by a
request that arrives late. obstore's own retries are off: `Retrying` decides, and knows what a retry means here.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store, from_url

from millpond.model.buffers import Buffer
from millpond.model.errors import CorruptObject, ObjectExists, ObjectMissing, StoreFull, StoreUnavailable
from millpond.model.extents import Location
from millpond.model.ids import Session
from millpond.objects.store import Method, check_expiry, check_key, check_prefix, check_range, total_length
from millpond.segments.keys import journal_key

REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 5_000
KEY_TRIES_MAX = 8
"""How many journal keys one append tries before it stops looking for a free one."""

LIST_PAGE_KEYS = 1_000
DELETE_BATCH_KEYS = 1_000
_REASON_LENGTH_MAX = 300
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_NO_ROOM = ("507 Insufficient Storage", "StorageFull", "QuotaExceeded")


class RemoteStore:
    """Each append is one complete object with its own sequence number, so no object is ever open."""

    appends_are_uploads = True
    reads_at_once = 16

    def __init__(
        self,
        url: str,
        session: Session,
        *,
        config: Mapping[str, str] | None = None,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
    ) -> None:
        """obstore interprets `url` and `config`. Credentials come from the environment unless given."""
        settings: Any = dict(config or {})  # a TypedDict per provider; obstore checks the names
        self._store = from_url(
            url,
            config=settings,
            client_options={
                "allow_http": settings.get("endpoint", "").startswith("http://"),
                "timeout": timedelta(milliseconds=request_timeout_ms),
                "connect_timeout": timedelta(milliseconds=connect_timeout_ms),
            },
            retry_config={"max_retries": 0},
        )
        is_signed = str(settings.get("skip_signature")).lower() != "true"
        self._signer = self._store if isinstance(self._store, S3Store) and is_signed else None
        self._session = session
        self._sequences = itertools.count()  # next() on it is atomic in CPython
        self._closed = False

    def append(self, parts: Sequence[Buffer]) -> Location:
        length = total_length(parts)
        for _ in range(KEY_TRIES_MAX):
            key = journal_key(self._session, next(self._sequences))
            try:
                self._create(key, parts)
            except ObjectExists:
                # An earlier attempt by this store that seemed lost. No row refers to its bytes; use a new key.
                continue
            return Location(key, 0, length)
        raise StoreUnavailable(reason=f"{KEY_TRIES_MAX} journal keys in a row are taken")

    def is_open(self, key: str) -> bool:
        check_key(key)
        return False

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        total_length(parts)
        self._create(check_key(key), parts)

    def read(self, key: str, start: int, length: int) -> memoryview:
        check_range(start, length)
        with _errors(check_key(key)):
            data = bytearray(obstore.get_range(self._store, key, start=start, length=length))
        if len(data) != length:
            raise CorruptObject(
                key=key, position=start + len(data), reason=f"{length} bytes from {start} were asked"
            )
        return memoryview(data)

    def list(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        return self._list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        remaining = iter(keys)
        while batch := [check_key(key) for key in itertools.islice(remaining, DELETE_BATCH_KEYS)]:
            self._delete(batch)

    def size(self, key: str) -> int:
        with _errors(check_key(key)):
            return obstore.head(self._store, key)["size"]

    def copy(self, key: str, new_key: str) -> None:
        """S3 has no copy that fails if the new object exists, so the new key is checked first."""
        if self._closed:
            raise StoreUnavailable(reason="it is closed")
        check_key(key)
        try:
            self.size(new_key)
        except ObjectMissing:
            with _errors(key):
                obstore.copy(self._store, key, new_key)
        else:
            raise ObjectExists(key=new_key)

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        check_key(key)
        check_expiry(expires_s)
        if self._signer is None:
            return None
        with _errors(key):
            return obstore.sign(self._signer, method, key, expires_in=timedelta(seconds=expires_s))

    def close(self) -> None:
        """obstore has nothing to close; its connections are released with the object."""
        self._closed = True

    def _create(self, key: str, parts: Sequence[Buffer]) -> None:
        if self._closed:
            raise StoreUnavailable(reason="it is closed")
        # Joined: a request that timed out must not still refer to buffers that the caller reuses.
        body = b"".join(parts)
        try:
            with _errors(key):
                obstore.put(self._store, key, body, mode="create")
        except ObjectMissing as error:
            raise StoreUnavailable(reason="the bucket does not exist") from error

    def _list(self, prefix: str) -> Iterator[str]:
        with _errors(prefix):
            for page in obstore.list(self._store, prefix or None, chunk_size=LIST_PAGE_KEYS):
                for entry in page:
                    yield entry["path"]

    def _delete(self, batch: Sequence[str]) -> None:
        try:
            with _errors(batch[0]):
                obstore.delete(self._store, batch)
        except ObjectMissing:
            # Stores without a bulk delete stop at the first missing object: continue one by one.
            for key in batch:
                with contextlib.suppress(ObjectMissing), _errors(key):
                    obstore.delete(self._store, key)


@contextlib.contextmanager
def _errors(key: str) -> Iterator[None]:
    """Translate obstore's errors. Some can be distinguished only by their text."""
    try:
        yield
    except (AlreadyExistsError, PreconditionError) as error:
        raise ObjectExists(key=key) from error
    except (BaseError, OSError, ValueError) as error:
        text = str(error)
        if "416 Range Not Satisfiable" in text:
            raise CorruptObject(key=key, position=0, reason="it ends before the range asked for") from error
        if isinstance(error, FileNotFoundError) and not any(sign in text for sign in _NO_BUCKET):
            raise ObjectMissing(key=key) from error
        kind = StoreFull if any(sign in text for sign in _NO_ROOM) else StoreUnavailable
        raise kind(reason=text.partition("\n")[0][:_REASON_LENGTH_MAX]) from error
