"""The seam below everything: a place that makes bytes durable and gives them back.

The docstrings are the contract, and one suite (`tests/contract/objects`) holds every implementation and
wrapper to them. What an object means is for the layers above; the store knows keys and bytes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol

from millpond.model.errors import InvalidRequest
from millpond.model.extents import Location
from millpond.records.buffers import Buffer

WRITE_BYTES_MAX = 1 << 30
"""The most bytes of one append or put: it fits one S3 PUT (5 GiB) and one buffer in memory."""

KEY_LENGTH_MAX = 255

SIGNED_SECONDS_MAX = 7 * 86_400
"""The longest a signed URL may be good for: what S3 allows."""

Method = Literal["GET", "PUT"]
"""What a signed URL is good for."""

_KEY = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")


class ObjectStore(Protocol):
    """Objects by key. Every method may be called from any thread, and blocks until it is done.

    * **Durable means durable.** When `append` or `put` returns, the bytes survive what the store promises to
      survive (memory: nothing; file: power loss; object store: what its owner says). When it raises, the
      bytes may be there in whole, in part or not at all: nothing was promised, and what nobody refers to is
      collected later.
    * **Bytes never change.** An acknowledged byte reads the same until its object is deleted.
    * **Buffers stay the caller's.** They are read during the call only and must not change meanwhile; none is
      kept. What `read` returns belongs to the caller.
    * **Keys** are the caller's names from `millpond.segments.keys`: 1 to 255 of letters, digits, `_` and `-`
      in parts divided by `/`. No key is the folder of another (`a` and `a/b`).
    * **Errors.** `StoreUnavailable` (try again), `StoreFull` (try again when there is room), `ObjectExists`,
      `ObjectMissing`, `CorruptObject`, and `InvalidRequest` for a key, range or size that no store takes.
    """

    @property
    def appends_are_uploads(self) -> bool:
        """Whether an append is slow and independent of others: several at once pay, small ones do not.

        False: an append costs about a millisecond and appends queue behind each other.
        """

    @property
    def reads_at_once(self) -> int:
        """How many reads of one reader are worth making at the same time."""

    def append(self, parts: Sequence[Buffer]) -> Location:
        """Make the parts durable, one after another, as one run of bytes at a place of the store's choosing.

        The key is under `journal/<session>/` of this store's session; no two locations overlap. At least one
        byte, at most `WRITE_BYTES_MAX`, any number of parts, empty ones too. Appends from several threads are
        taken in some order. Not idempotent: the same append again is stored again.
        """

    def is_open(self, key: str) -> bool:
        """Whether a later append by this store may still go into this object.

        Once an object has stopped being open it stays so, and grows no more. Says nothing of other processes'
        objects.
        """

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """Make a new object of the parts: all of it appears, or nothing.

        `ObjectExists` if there is one, which is left as it was. (A store that tries again by itself may take
        an object with exactly these bytes for its own.) Limits as for `append`.
        """

    def read(self, key: str, start: int, length: int) -> bytes:
        """Exactly `length` bytes (at least 1) from `start` (at least 0).

        `ObjectMissing` if there is no such object, `CorruptObject` if it ends before `start + length`.
        """

    def list(self, prefix: str) -> Iterator[str]:
        """The keys that start with `prefix`, ascending. The prefix is empty or ends with `/`.

        Lazy. Objects acknowledged before the listing starts and not deleted while it runs are all there; of
        those made or deleted meanwhile, any. Bytes of failed appends may show up as objects too.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. A key that is not there is no error: deleting may be repeated.

        After an error any of them may be gone. Deleting an open object closes it first: later appends go
        elsewhere. Never delete an object that another live process may have open; the session in its key
        tells whose it is.
        """

    def size(self, key: str) -> int:
        """The object's length; of an open one, up to the last acknowledged append. `ObjectMissing` if none.

        An object whose writer crashed or failed may be longer than what was acknowledged.
        """

    def copy(self, key: str, new_key: str) -> None:
        """Make a new object with the bytes of another one that is not open, inside the store where it can.

        `ObjectMissing` if there is none, `ObjectExists` if the new one is there already: for certain where it was
        there before the call, and not for certain where two copy to it at the same time (S3 cannot tell them apart).
        """

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        """A URL with which anybody can get the object, or put it, for so many seconds (1 to 7 days), without asking us.

        None if the store has no URLs. Says nothing of whether the object is there. A put by URL replaces what is there
        unless it says `If-None-Match: *`.
        """

    def close(self) -> None:
        """Release files and connections. Idempotent. A later append or put raises `StoreUnavailable`, and so may
        whatever else is asked."""


def check_key(key: str) -> str:
    """Refuse what is not a key. No part can be empty, `.` or `..`, so no key leaves the store's root."""
    if len(key) > KEY_LENGTH_MAX or _KEY.fullmatch(key) is None:
        raise InvalidRequest(reason=f"{key!r} is not an object key")
    return key


def check_prefix(prefix: str) -> str:
    """Refuse what is not whole folders: S3 could list half a name, a file system and obstore cannot."""
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
    """The length of an append or put, refused if no store takes it."""
    length = sum(map(len, parts))
    if not 0 < length <= WRITE_BYTES_MAX:
        raise InvalidRequest(reason=f"{length} bytes cannot be stored: 1 to {WRITE_BYTES_MAX} can")
    return length
