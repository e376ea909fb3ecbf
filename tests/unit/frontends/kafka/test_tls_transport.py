"""Pieces of responses over TLS: joined when small, cut when large, and held while the client does not read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.frontends.kafka.tls_transport import PIECE_BYTES, TlsTransport


class Wire:
    """A transport that accepts `room` bytes until it is read."""

    def __init__(self, room=10**9):
        self.pieces, self.room, self.closed, self.aborted = [], room, False, False
        self.tls = TlsTransport(self)

    def write(self, piece):
        assert not self.closed
        self.pieces.append(bytes(piece))
        self.room -= len(piece)
        if self.room <= 0:
            self.tls.pause_writing()

    def read(self, size):
        """The client reads. Returns whether nothing waits."""
        self.room += size
        return self.tls.resume_writing() if self.room > 0 else False

    def get_write_buffer_size(self):
        return 7

    def is_closing(self):
        return self.closed or self.aborted

    def close(self):
        self.closed = True

    def abort(self):
        self.aborted = True

    @property
    def received(self):
        return b"".join(self.pieces)


def test_small_buffers_are_one_piece():
    wire = Wire()
    wire.tls.writelines([b"\0\0\0\5", bytearray(b"a"), b"", memoryview(b"bcd")])
    assert wire.pieces == [b"\0\0\0\5abcd"]


@given(st.lists(st.integers(0, 3 * PIECE_BYTES), max_size=6))
def test_pieces_are_bounded_and_complete(sizes):
    buffers = [bytes([number]) * size for number, size in enumerate(sizes, 1)]
    wire = Wire()
    wire.tls.writelines(buffers)
    assert wire.received == b"".join(buffers)
    assert all(len(piece) == PIECE_BYTES for piece in wire.pieces[:-1])
    assert all(0 < len(piece) <= PIECE_BYTES for piece in wire.pieces[-1:])


def test_the_rest_waits_while_the_client_does_not_read():
    wire = Wire(room=PIECE_BYTES)
    response = bytes(range(256)) * (4 * PIECE_BYTES // 256)
    wire.tls.writelines([response])
    assert len(wire.received) == PIECE_BYTES
    assert wire.tls.get_write_buffer_size() == 3 * PIECE_BYTES + 7
    wire.tls.writelines([b"next"])
    assert len(wire.received) == PIECE_BYTES
    assert not wire.read(2 * PIECE_BYTES)
    assert len(wire.received) == 3 * PIECE_BYTES
    assert wire.read(2 * PIECE_BYTES)
    assert wire.received == response + b"next"
    assert wire.tls.get_write_buffer_size() == 7


def test_closing_waits_for_the_rest():
    wire = Wire(room=1)
    wire.tls.writelines([bytes(2 * PIECE_BYTES)])
    wire.tls.close()
    assert wire.tls.is_closing()
    assert not wire.closed
    wire.read(3 * PIECE_BYTES)
    assert wire.closed
    assert len(wire.received) == 2 * PIECE_BYTES


def test_closing_without_a_rest_is_immediate():
    wire = Wire()
    wire.tls.close()
    assert wire.closed


@pytest.mark.parametrize("end", ["abort", "lost"])
def test_an_aborted_connection_drops_the_rest(end):
    wire = Wire(room=1)
    wire.tls.writelines([bytes(2 * PIECE_BYTES)])
    if end == "abort":
        wire.tls.abort()
        assert wire.aborted
    else:
        wire.closed = True
    wire.tls.resume_writing()
    assert len(wire.pieces) == 1
    assert wire.tls.get_write_buffer_size() == 7
