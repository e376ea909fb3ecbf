"""Frames out of a byte stream: how the stream is cut into reads changes nothing, and lengths alone cost nothing."""

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.frontends.kafka.frames import STAGING_BYTES, FrameReader
from millpond.model.errors import MalformedMessage

LIMIT = 2 * STAGING_BYTES + 7


def reading(limit=LIMIT):
    return FrameReader(limit, bytearray(STAGING_BYTES))


def framed(body):
    return struct.pack(">i", len(body)) + body


def received(reader, data, cuts=()):
    """Feed `data` in pieces that end at `cuts`, and in smaller ones where the reader has less room."""
    frames = []
    position = 0
    for cut in (*sorted(cuts), len(data)):
        while position < cut:
            with reader.room() as room:
                assert len(room) > 0, "a reader without room would spin for ever"
                count = min(len(room), cut - position)
                room[:count] = data[position : position + count]
            frames += reader.received(count)
            position += count
    return [bytes(frame) for frame in frames]


sizes = st.one_of(
    st.integers(0, 40),
    st.sampled_from([STAGING_BYTES - 5, STAGING_BYTES - 4, STAGING_BYTES - 3, STAGING_BYTES, LIMIT]),
    st.integers(0, LIMIT),
)


@given(st.lists(sizes, max_size=6), st.lists(st.floats(0, 1), max_size=12), st.integers())
@settings(max_examples=100, deadline=None)
def test_every_split_of_a_stream_gives_the_same_frames(lengths, cuts, seed):
    chance = random.Random(seed)
    bodies = [chance.randbytes(length) for length in lengths]
    stream = b"".join(map(framed, bodies))
    reader = reading()
    assert received(reader, stream, [int(cut * len(stream)) for cut in cuts]) == bodies
    assert not reader.in_progress
    assert reader.held_bytes == 0


def test_a_stream_that_comes_byte_by_byte_gives_the_same_frames():
    bodies = [b"", b"x", bytes(range(256)), b"", b"last"]
    stream = b"".join(map(framed, bodies))
    assert received(reading(), stream, range(len(stream))) == bodies


def test_a_frame_is_its_own_memory():
    """The staging buffer is used again at once, and a frame is still being read by its handler."""
    reader = reading()
    data = framed(b"first")
    reader.room()[: len(data)] = data
    [first] = reader.received(len(data))
    assert received(reader, framed(b"other")) == [b"other"]
    assert first == b"first"


@given(st.data(), st.integers())
@settings(max_examples=50, deadline=None)
def test_readers_that_share_a_staging_buffer_do_not_disturb_each_other(data, seed):
    chance = random.Random(seed)
    staging = bytearray(STAGING_BYTES)
    streams = []
    for _ in range(3):
        bodies = [chance.randbytes(length) for length in data.draw(st.lists(sizes, max_size=3))]
        streams.append((FrameReader(LIMIT, staging), bodies, bytearray(b"".join(map(framed, bodies))), []))
    while any(left for _, _, left, _ in streams):
        reader, _, left, frames = chance.choice([each for each in streams if each[2]])
        count = min(len(left), chance.choice([1, 3, 100, STAGING_BYTES]))
        frames += received(reader, left[:count])
        del left[:count]
    assert all(frames == bodies for _, bodies, _, frames in streams)


@pytest.mark.parametrize("begun", [1, 3, 4, 5, 100, STAGING_BYTES + 1])
def test_a_frame_that_has_begun_is_in_progress(begun):
    reader = reading()
    assert not reader.in_progress
    stream = framed(bytes(2 * STAGING_BYTES))
    assert received(reader, stream[:begun]) == []
    assert reader.in_progress
    assert received(reader, stream[begun:]) == [stream[4:]]
    assert not reader.in_progress


@pytest.mark.parametrize("length", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_a_length_that_is_not_allowed_is_refused_when_it_is_read(length):
    reader = reading()
    assert received(reader, framed(b"good") + struct.pack(">i", length)[:3]) == [b"good"]
    with pytest.raises(MalformedMessage, match=f"a frame of {length} bytes, where {LIMIT} are allowed"):
        received(reader, struct.pack(">i", length)[3:])


def test_the_frames_before_a_length_that_is_not_allowed_are_delivered():
    reader = reading()
    data = framed(b"one") + framed(b"two") + struct.pack(">i", -1)
    reader.room()[: len(data)] = data
    frames = reader.received(len(data))
    assert [bytes(next(frames)), bytes(next(frames))] == [b"one", b"two"]
    with pytest.raises(MalformedMessage):
        next(frames)


def test_the_largest_length_that_is_allowed_is_taken():
    body = bytes(LIMIT)
    assert received(reading(), framed(body)) == [body]


def test_a_length_alone_takes_little_memory():
    reader = reading(100 << 20)
    received(reader, struct.pack(">i", 100 << 20) + b"x")
    assert 0 < reader.held_bytes <= STAGING_BYTES


@given(st.integers(1, 40))
@settings(deadline=None)
def test_memory_follows_the_bytes_that_have_come(steps):
    limit = 1 << 30
    reader = reading(limit)
    received(reader, struct.pack(">i", limit))
    come = 0
    for _ in range(steps):
        with reader.room() as room:
            count = min(len(room), STAGING_BYTES)
        list(reader.received(count))
        come += count
        assert come <= reader.held_bytes <= max(STAGING_BYTES, 2 * come)


def test_a_sender_of_large_frames_gets_them_in_one_piece():
    reader = reading()
    large = framed(bytes(LIMIT - 9))
    assert len(received(reader, large)) == 1
    received(reader, large[:5])
    assert reader.held_bytes == LIMIT - 9
