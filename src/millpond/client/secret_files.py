"""Files that hold one secret: a password or a token. No error shows what is in them."""

import os
import stat
from pathlib import Path
from typing import Final

from millpond.client import arguments
from millpond.model.errors import InvalidArgument, Unavailable

SECRET_BYTES_MAX: Final = 64 * 1024
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO

FileState = tuple[int, int, int, int]
"""What changes when a file is written or replaced."""


def read_secret(name: str, path: Path) -> str:
    """The content without the line break at its end. `name` is that of the argument or variable that has the path."""
    return _read(name, path)[0]


def check_private(name: str, path: Path) -> None:
    """Refuse a file that other users of this machine can open. Pipes and devices are accepted."""
    mode = _stat(name, path).st_mode
    if stat.S_ISREG(mode) and mode & OTHERS:
        raise InvalidArgument(
            f"{name}: other users can open {path}, which holds a secret. Protect it: chmod 600 '{path}'.",
            argument=name,
            value=str(path),
            expected="a file that only you can open",
        )


class TokenFile:
    """A token from a file. It is read again when the file has changed, so that a token can be replaced while a client
    runs. A pipe is read once."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self._token, self._state = _read(name, path)
        arguments.token(name, self._token)

    def __call__(self) -> str:
        """Raises `Unavailable` while the file cannot be read: it may be about to be replaced."""
        try:
            if self._state is not None and _state(_stat(self._name, self._path)) != self._state:
                self._token, self._state = _read(self._name, self._path)
        except InvalidArgument as error:
            raise Unavailable(str(error)) from error
        return self._token

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"


def _read(name: str, path: Path) -> tuple[str, FileState | None]:
    """The secret, and the state of the file if it can be read again."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise _unreadable(name, path, error) from error
    state = _state(status) if stat.S_ISREG(status.st_mode) else None
    return _text(name, path, content), state


def _text(name: str, path: Path, content: bytes) -> str:
    try:
        found = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        found = ""
    if not found or len(content) > SECRET_BYTES_MAX:
        raise arguments.out_of_range(name, str(path), f"a file with 1 to {SECRET_BYTES_MAX} bytes of UTF-8")
    return found


def _stat(name: str, path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(name, path, error) from error


def _state(status: os.stat_result) -> FileState:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _unreadable(name: str, path: Path, error: OSError) -> InvalidArgument:
    return arguments.out_of_range(name, str(path), f"a file that can be read ({error.strerror or error})")
