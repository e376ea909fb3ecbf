"""Splits a byte stream into frames, for `asyncio.BufferedProtocol`: the kernel writes directly into the frame.

Small frames are copied out of a staging buffer that all connections of a server share, so an idle connection
holds no buffer. A frame that has not arrived completely gets its own buffer, which grows with the bytes
received: a client can claim any length, so the claimed length alone must not allocate memory. After a
connection has sent a large frame, later frames up to that size get a full-size buffer immediately.
"""

from collections.abc import Iterator

from millpond.protocol import LENGTH_BYTES, frame_length

STAGING_BYTES = 64 * 1024
FIRST_BYTES = 4 * 1024
"""Initial buffer size for the first frame that does not arrive completely."""
GROWTH = 2


class FrameReader:
    """`room()` returns the buffer to write to next; `received(count)` yields the frames that are now complete.

    Between a `room()` and its `received()` no other reader of the same staging buffer may be used, which an
    event loop guarantees. After `received()` the staging buffer holds no data. `limit` is the maximum length of a
    frame and may be changed.
    """

    __slots__ = ("_body", "_filled", "_largest", "_length", "_rest", "_staging", "limit")

    def __init__(self, limit: int, staging: bytearray) -> None:
        self.limit = limit
        self._staging = staging
        self._rest = b""
        self._body: bytearray | None = None
        self._length = 0
        self._filled = 0
        self._largest = FIRST_BYTES

    @property
    def in_progress(self) -> bool:
        """Whether a frame has been received only in part."""
        return self._body is not None or bool(self._rest)

    @property
    def held_bytes(self) -> int:
        """The size of the buffer of the frame being received."""
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
        """Discard received data and free its memory; the sender has disconnected."""
        self._rest, self._body = b"", None

    def _cut(self, end: int) -> Iterator[bytearray]:
        """Yield the complete frames in the staging buffer. An incomplete frame moves to its own buffer, and
        an incomplete length prefix to `_rest`."""
        self._rest = b""
        start = 0
        while end - start >= LENGTH_BYTES:
            body = start + LENGTH_BYTES
            length = frame_length(self._staging[start:body], self.limit)
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
