"""Frames out of a byte stream, for `asyncio.BufferedProtocol`: the kernel writes straight into the frame.

Small frames are copied out of a staging buffer, which all connections of a server share: an idle one has none. A
frame that does not fit what has arrived gets a buffer of its own, which grows with the bytes that really come: a
length by itself costs its sender nothing, so it must not cost us memory. A connection that has shown that it sends
large frames gets them in one piece.
"""

from collections.abc import Iterator

from millpond.protocol import LENGTH_BYTES, frame_length

STAGING_BYTES = 64 * 1024
FIRST_BYTES = 4 * 1024
"""What the first frame that does not come whole gets to begin with."""
GROWTH = 2


class FrameReader:
    """`room()` is where to write next; `received(count)` yields the frames that are now whole.

    Between a `room()` and its `received()` no other reader of the same staging buffer may be used, which holds on
    an event loop; afterwards nothing is left in it."""

    __slots__ = ("_body", "_filled", "_largest", "_length", "_limit", "_rest", "_staging")

    def __init__(self, limit: int, staging: bytearray) -> None:
        self._limit = limit
        self._staging = staging
        self._rest = b""
        self._body: bytearray | None = None
        self._length = 0
        self._filled = 0
        self._largest = FIRST_BYTES

    @property
    def in_progress(self) -> bool:
        """Whether the sender stopped in the middle of a frame."""
        return self._body is not None or bool(self._rest)

    @property
    def held_bytes(self) -> int:
        """The buffer of the frame that is being received."""
        return len(self._body) if self._body is not None else 0

    def room(self) -> memoryview:
        if self._body is None:
            self._staging[: len(self._rest)] = self._rest
            return memoryview(self._staging)[len(self._rest) :]
        if self._filled == len(self._body):
            self._grow(self._body)
        return memoryview(self._body)[self._filled :]

    def received(self, count: int) -> Iterator[bytearray]:
        if self._body is None:
            yield from self._cut(len(self._rest) + count)
            return
        self._filled += count
        if self._filled == self._length:
            frame, self._body = self._body, None
            self._largest = max(self._largest, self._length)
            yield frame

    def drop(self) -> None:
        """Forget what has come: its sender has gone, and so may the memory."""
        self._rest, self._body = b"", None

    def _cut(self, end: int) -> Iterator[bytearray]:
        """Whole frames from the staging buffer. What is left of a frame moves into a buffer of its own, and of a
        length, into `_rest`."""
        self._rest = b""
        start = 0
        while end - start >= LENGTH_BYTES:
            body = start + LENGTH_BYTES
            length = frame_length(self._staging[start:body], self._limit)
            if body + length > end:
                self._begin(body, end, length)
                return
            start = body + length
            yield self._staging[body:start]
        self._rest = bytes(self._staging[start:end])

    def _begin(self, start: int, end: int, length: int) -> None:
        have = end - start
        self._body = bytearray(min(length, max(self._largest, have * GROWTH)))
        self._body[:have] = memoryview(self._staging)[start:end]
        self._length, self._filled = length, have

    def _grow(self, body: bytearray) -> None:
        larger = bytearray(min(self._length, len(body) * GROWTH))
        larger[: self._filled] = body
        self._body = larger
