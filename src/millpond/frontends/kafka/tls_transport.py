"""Writes responses to a TLS transport in pieces.

A TLS transport of asyncio or uvloop encrypts everything that it receives at once, and makes at least one TLS record of
each buffer. It also reports as unread only what it has not passed on to the socket's transport: a large response that
is written in one call would be held in memory, and counted nowhere, until the client reads it. Therefore small buffers
are joined, and a piece is written only while the transport accepts more.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

PIECE_BYTES: Final = 256 * 1024


class TlsTransport:
    """The calls of a transport that a connection uses. The connection passes on `pause_writing` and
    `resume_writing`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._waiting: deque[memoryview] = deque()
        self._waiting_bytes = 0
        self._is_paused = False
        self._is_closing = False

    def writelines(self, buffers: Iterable[bytes | bytearray | memoryview]) -> None:
        for each in buffers:
            if len(each) > 0:
                self._waiting.append(memoryview(each))
                self._waiting_bytes += len(each)
        self._write_pieces()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> bool:
        """Write more. Returns whether nothing waits any more."""
        self._is_paused = False
        self._write_pieces()
        return not self._is_paused

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int) -> None:
        self._transport.set_write_buffer_limits(high=high)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def close(self) -> None:
        """Close when everything is written."""
        self._is_closing = True
        if not self._waiting:
            self._transport.close()

    def abort(self) -> None:
        self._is_closing = True
        self._drop()
        self._transport.abort()

    def _write_pieces(self) -> None:
        while self._waiting and not self._is_paused and not self._transport.is_closing():
            self._transport.write(self._next_piece())
        if self._transport.is_closing():
            self._drop()
        elif self._is_closing and not self._waiting:
            self._transport.close()

    def _next_piece(self) -> bytes | memoryview:
        parts, size = [], 0
        while self._waiting and size < PIECE_BYTES:
            part = self._waiting.popleft()
            if size + len(part) > PIECE_BYTES:
                self._waiting.appendleft(part[PIECE_BYTES - size :])
                part = part[: PIECE_BYTES - size]
            parts.append(part)
            size += len(part)
        self._waiting_bytes -= size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _drop(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
