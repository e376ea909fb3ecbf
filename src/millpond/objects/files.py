"""The file system operations of the file store, each written to survive a power cut."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from millpond.model.buffers import Buffer
from millpond.model.errors import StoreFull, StoreUnavailable

PIECE_BYTES = 1024 * 1024
"""How much of a large object is written between two syncs."""
_GATHER_MAX = os.sysconf("SC_IOV_MAX")
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def os_errors() -> Iterator[None]:
    """Translate the operating system's errors into the store's."""
    try:
        yield
    except OSError as error:
        kind = StoreFull if error.errno in NO_ROOM else StoreUnavailable
        raise kind(reason=str(error)) from error


def write_all(descriptor: int, parts: Sequence[Buffer], position: int) -> None:
    """Write the parts at `position`. The kernel accepts at most IOV_MAX buffers per call, and may write fewer
    bytes."""
    for first in range(0, len(parts), _GATHER_MAX):
        piece = list(parts[first : first + _GATHER_MAX])
        remaining = sum(map(len, piece))
        while remaining:
            written = os.pwritev(descriptor, piece, position)
            if written == 0:
                raise OSError(errno.EIO, "the file took no bytes")
            position += written
            remaining -= written
            if remaining:
                piece = _after(piece, written)


def write_in_synced_pieces(descriptor: int, parts: Sequence[Buffer]) -> None:
    """Write the parts from the start in small pieces, and sync each piece before the next. A concurrent
    append's fsync then waits for one piece, not for the whole object."""
    piece: list[Buffer] = []
    position = size = 0
    for part in parts:
        piece.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            write_all(descriptor, piece, position)
            os.fdatasync(descriptor)
            position, piece, size = position + size, [], 0
    write_all(descriptor, piece, position)


def _after(parts: list[Buffer], written: int) -> list[Buffer]:
    """The parts without their first `written` bytes."""
    for number, part in enumerate(parts):
        if written < len(part):
            return [memoryview(part)[written:], *parts[number + 1 :]]
        written -= len(part)
    return []


def read_into(path: Path, start: int, view: memoryview) -> int:
    """Fill the view with the bytes from `start`. Returns how many there were: fewer than fit only at the end of the
    file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    count = 0
    try:
        while count < len(view) and (more := os.preadv(descriptor, [view[count:]], start + count)):
            count += more
        return count
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: fsync of a file does not cover its name."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, root: Path) -> None:
    """Create the directory and all directories between it and `root`, durably, even if another process
    created them."""
    path.mkdir(parents=True, exist_ok=True)
    while path != root:
        path = path.parent
        sync_directory(path)


def new_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)


def lock_file(descriptor: int) -> bool:
    """Take the file's lock if it is free. The lock ends with the process, even if the process crashes."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def walk(folder: Path, prefix: str) -> Iterator[str]:
    """The files below a folder as keys, in ascending order. Names with a dot are not objects."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    # With its "/" a folder sorts like its keys: "a-b" comes before "a/c".
    for name in names:
        if "." in name:
            continue
        if name.endswith("/"):
            yield from walk(folder / name, prefix + name)
        else:
            yield prefix + name
