"""The object store protocol: makes bytes durable and reads them again. All storage of bytes goes through it.

The docstrings are the contract, and one suite (`tests/contract/objects`) tests every implementation and
wrapper against them. The store knows only keys and bytes. The layers above know what an object means.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol

from millpond.model.buffers import Buffer
from millpond.model.errors import InvalidRequest
from millpond.model.extents import Location

WRITE_BYTES_MAX = 1 << 30
"""Maximum bytes of one append or put: it fits one S3 PUT (5 GiB) and one buffer in memory."""

KEY_LENGTH_MAX = 255

SIGNED_SECONDS_MAX = 7 * 86_400
"""Maximum lifetime of a signed URL: the limit of S3."""

Method = Literal["GET", "PUT"]
"""The HTTP method that a signed URL allows."""

_KEY = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")


class ObjectStore(Protocol):
    """Objects by key. Every method may be called from any thread, and blocks until it is done.

    * **Durability.** When `append` or `put` returns, the bytes survive what the store promises to survive
      (memory: nothing; file: power loss; object store: what its provider says). When it raises, the bytes may
      be stored in whole, in part or not at all: nothing was promised, and unreferenced bytes are collected
      later.
    * **Bytes never change.** An acknowledged byte reads the same until its object is deleted.
    * **Callers own their buffers.** The store reads them during the call only, and keeps none. They must not
      change during the call. The caller owns what `read` returns, and may change it.
    * **Keys** are names that the caller takes from `millpond.segments.keys`: 1 to 255 of letters, digits, `_`
      and `-` in parts divided by `/`. No key is the folder of another (`a` and `a/b`).
    * **Errors.** `StoreUnavailable` (retry), `StoreFull` (retry when there is room), `ObjectExists`,
      `ObjectMissing`, `CorruptObject`, and `InvalidRequest` for a key, range or size that no store accepts.
    """

    @property
    def appends_are_uploads(self) -> bool:
        """Whether an append is slow and independent of others, so that concurrent appends pay off and small
        ones do not.

        False: an append costs about a millisecond, and appends queue behind each other.
        """

    @property
    def reads_at_once(self) -> int:
        """How many concurrent reads are worthwhile for one reader."""

    def append(self, parts: Sequence[Buffer]) -> Location:
        """Make the parts durable, one after another, as one run of bytes at a location that the store chooses.

        The key is under `journal/<session>/` of this store's session; no two locations overlap. At least one
        byte, at most `WRITE_BYTES_MAX`, any number of parts, empty ones too. Appends from several threads are
        stored in any order. Not idempotent: a repeated append is stored again.
        """

    def is_open(self, key: str) -> bool:
        """Whether a later append by this store may still go into this object.

        An object that is no longer open never opens again and no longer grows. The result says nothing about
        objects of other processes.
        """

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Create a new object from the parts: all of it appears, or nothing.

        `ObjectExists` if the object exists; it stays unchanged. (A store that retries by itself may accept an
        existing object with exactly these bytes as its own.) Limits as for `append`.
        """

    def read(self, key: str, start: int, length: int) -> memoryview:
        """Return exactly `length` bytes (at least 1) from `start` (at least 0), in memory that may be changed.

        The memory is used again when the view and all its parts are gone, so keep no part of it for longer than the
        whole should stay.

        `ObjectMissing` if there is no such object, `CorruptObject` if it ends before `start + length`.
        """

    def list(self, prefix: str) -> Iterator[str]:
        """The keys that start with `prefix`, ascending. The prefix is empty or ends with `/`.

        Lazy. The listing includes every object that was acknowledged before it starts and is not deleted
        while it runs. It may or may not include objects that are created or deleted while it runs. Bytes of
        failed appends may appear as objects too.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. A missing key is no error, so a delete may be repeated.

        After an error any of them may be gone. Deleting an open object closes it first: later appends go to
        another object. Never delete an object that another live process may have open; the session in its key
        identifies its writer.
        """

    def size(self, key: str) -> int:
        """The object's length; for an open object, the end of the last acknowledged append. `ObjectMissing`
        if there is none.

        An object whose writer crashed or failed may be longer than what was acknowledged.
        """

    def copy(self, key: str, new_key: str) -> None:
        """Create a new object with the bytes of another one that is not open, inside the store if it can.

        `ObjectMissing` if the source does not exist. `ObjectExists` if the new object existed before the call. If
        two callers copy to the same key at the same time, the error is not guaranteed (S3 cannot tell them apart).
        """

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        """A URL that lets any client get or put the object for this many seconds (at most 7 days), without a
        further permission check.

        None if the store has no URLs. The URL does not show whether the object exists. A put by URL replaces
        an existing object unless the request has `If-None-Match: *`.
        """

    def close(self) -> None:
        """Release files and connections. Idempotent. A later append or put raises `StoreUnavailable`; any
        other later call may raise it, too."""


def check_key(key: str) -> str:
    """Refuse an invalid key. No part can be empty, `.` or `..`, so no key leaves the store's root."""
    if len(key) > KEY_LENGTH_MAX or _KEY.fullmatch(key) is None:
        raise InvalidRequest(reason=f"{key!r} is not an object key")
    return key


def check_prefix(prefix: str) -> str:
    """Refuse a prefix that does not consist of whole folders. S3 could list part of a name; a file system and
    obstore cannot."""
    if prefix and not prefix.endswith("/"):
        raise InvalidRequest(reason=f"the prefix {prefix!r} does not end with '/'")
    if prefix:
        check_key(prefix[:-1])
    return prefix


def check_expiry(expires_s: int) -> int:
    if not 1 <= expires_s <= SIGNED_SECONDS_MAX:
        raise InvalidRequest(reason=f"a URL cannot be good for {expires_s} s: 1 to {SIGNED_SECONDS_MAX} can")
    return expires_s


def check_range(start: int, length: int) -> None:
    if start < 0 or length < 1:
        raise InvalidRequest(reason=f"{length} bytes from {start} are not a range")


def total_length(parts: Sequence[Buffer]) -> int:
    """The length of an append or put. Raises `InvalidRequest` for a length that no store accepts."""
    length = sum(map(len, parts))
    if not 0 < length <= WRITE_BYTES_MAX:
        raise InvalidRequest(reason=f"{length} bytes cannot be stored: 1 to {WRITE_BYTES_MAX} can")
    return length
