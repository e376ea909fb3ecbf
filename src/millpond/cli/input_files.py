"""The input of `millpond produce`: arguments of the command line, files, a terminal, a pipe.

A source yields pieces: the messages available now, each with its line, and the number of bytes read for them.
A terminal or a slow pipe yields a line as soon as there is one.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

from millpond.cli.interruption import Interruption
from millpond.model.configs import BATCH_BYTES_MAX
from millpond.model.errors import InvalidRequest

READ_BYTES: Final = 256 * 1024
STDIN: Final = "-"


class InputLine(NamedTuple):
    """`location` is the name for messages: "line 7", or "orders.txt, line 7"."""

    location: str
    content: bytes


class InputChunk(NamedTuple):
    lines: list[InputLine]
    bytes_read: int


class InputFile:
    """One file, or standard input."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: IO[bytes] = sys.stdin.buffer if path == STDIN else _open(path)
        self._prefix = "" if path == STDIN else f"{path}, "

    @property
    def is_terminal(self) -> bool:
        return self._file.isatty()

    @property
    def size_bytes(self) -> int:
        """The number of bytes to read; zero if unknown."""
        path = Path(self._path)
        return path.stat().st_size if self._path != STDIN and path.is_file() else 0

    def lines(self, interruption: Interruption) -> Iterator[InputChunk]:
        number = 0
        begun: list[bytes] = []
        begun_bytes = 0
        for chunk in self._chunks(interruption):
            *ended, rest = chunk.split(b"\n")
            if ended:
                ended[0] = b"".join((*begun, ended[0]))
                begun, begun_bytes = [], 0
            begun.append(rest)
            begun_bytes = self._bounded(begun_bytes + len(rest))
            yield InputChunk(self._numbered(ended, number), len(chunk))
            number += len(ended)
        if begun_bytes:
            yield InputChunk(self._numbered([b"".join(begun)], number), 0)

    def whole(self, interruption: Interruption) -> Iterator[InputChunk]:
        """The whole input as one message."""
        chunks: list[bytes] = []
        size = 0
        for chunk in self._chunks(interruption):
            chunks.append(chunk)
            size = self._bounded(size + len(chunk))
        location = "the input" if self._path == STDIN else self._path
        yield InputChunk([InputLine(location, b"".join(chunks))], size)

    def close(self) -> None:
        if self._path != STDIN:
            self._file.close()

    def _chunks(self, interruption: Interruption) -> Iterator[bytes]:
        while True:
            with interruption.allowed():
                chunk = self._read()
            if not chunk:
                return
            yield chunk

    def _read(self) -> bytes:
        try:
            chunk: bytes = self._file.read1(READ_BYTES)  # type: ignore[attr-defined]  # both kinds are buffered
        except OSError as error:
            raise InvalidRequest(f"{self._path} cannot be read: {error.strerror}.") from error
        return chunk

    def _numbered(self, contents: list[bytes], before: int) -> list[InputLine]:
        return [
            InputLine(f"{self._prefix}line {number}", content)
            for number, content in enumerate(contents, start=before + 1)
        ]

    def _bounded(self, size: int) -> int:
        """Raise if a message is larger than any broker accepts, because reading on would be useless."""
        if size > BATCH_BYTES_MAX:
            raise InvalidRequest(f"{self._path} has more than {BATCH_BYTES_MAX} bytes without a line's end.")
        return size


def texts(messages: tuple[str, ...]) -> Iterator[InputChunk]:
    """The --message arguments, as the bytes of the command line."""
    contents = [message.encode(errors="surrogateescape") for message in messages]
    yield InputChunk(
        [InputLine(f"message {number}", content) for number, content in enumerate(contents, start=1)],
        sum(map(len, contents)),
    )


def _open(path: str) -> IO[bytes]:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
