"""How a flush is laid out: one journal object, and one share per partition."""

import asyncio

import pytest

from millpond.log.admission import Admitted
from millpond.log.buffer import FlushBuffer, Pending, lay_out, lay_out_inline
from millpond.model.ids import TopicId, TopicPartition
from millpond.records import walk
from millpond.segments.frame import FRAME_BYTES, walk_journal
from millpond.segments.index import INDEX_EVERY_BYTES, unpack_index

A, B = (TopicPartition(TopicId(b"t" * 16), number) for number in range(2))
EPOCHS = {A: 3, B: 4}


@pytest.fixture
async def buffer(make_batch):
    def pending(topic_partition, data):
        admitted = Admitted(data, list(walk(data)), now_ms=0)
        return Pending(topic_partition, admitted, asyncio.get_running_loop().create_future())

    class Filled(FlushBuffer):
        def put(self, topic_partition, data):
            self.add(pending(topic_partition, data))

    return Filled(0.0)


async def test_every_partition_gets_a_frame_and_its_batches_in_arrival_order(buffer, make_batch):
    first, second, third = make_batch(b"a"), make_batch(b"bb", b"c"), make_batch(b"d")
    buffer.put(A, first)
    buffer.put(B, second)
    buffer.put(A, third)
    layout = lay_out(buffer, EPOCHS)
    data = b"".join(layout.parts)
    frames = {frame.topic_partition: (position, frame) for position, frame in walk_journal(data)}
    assert layout.length == len(data) == 2 * FRAME_BYTES + buffer.bytes
    for share in layout.shares:
        position, frame = frames[share.topic_partition]
        assert (share.position, share.length) == (position, frame.length)
        assert (share.records, share.epoch) == (frame.records, EPOCHS[share.topic_partition])
    bytes_of = {s.topic_partition: data[s.position : s.position + s.length] for s in layout.shares}
    assert bytes_of == {A: first + third, B: second}
    assert {topic_partition: frame.batches for topic_partition, (_, frame) in frames.items()} == {A: 2, B: 1}


async def test_inline_shares_carry_their_own_bytes(buffer, make_batch):
    first, second = make_batch(b"a"), make_batch(b"b")
    buffer.put(A, first)
    buffer.put(A, second)
    [share] = lay_out_inline(buffer, EPOCHS)
    assert (share.inline, share.position, share.length) == (first + second, 0, len(first + second))


async def test_timestamps_are_the_oldest_and_newest_of_all_batches(buffer, make_batch):
    for at in (500, 100, 900, 300):
        buffer.put(A, make_batch(b"a", at=at))
    [share] = lay_out_inline(buffer, EPOCHS)
    assert (share.min_timestamp, share.max_timestamp) == (100, 900)


async def test_sequences_count_from_the_shares_own_start(buffer, make_batch):
    buffer.put(A, make_batch(b"a", b"b"))
    buffer.put(A, make_batch(b"c", b"d", b"e", producer=(7, 1, 40)))
    buffer.put(A, make_batch(b"f", producer=(7, 1, 43)))
    [share] = lay_out_inline(buffer, EPOCHS)
    assert [(s.base_sequence, s.last_sequence, s.offset) for s in share.sequences] == [
        (40, 42, 2),
        (43, 43, 5),
    ]
    assert share.records == 6


async def test_a_large_share_has_an_index_into_its_own_bytes_and_a_small_one_has_none(buffer, make_batch):
    big = make_batch(b"x" * 20_000, b"y" * 20_000)
    for _ in range(5):
        buffer.put(A, big)
    buffer.put(B, make_batch(b"small"))
    layout = lay_out(buffer, EPOCHS)
    indexes = {share.topic_partition: share.sparse_index for share in layout.shares}
    assert indexes[B] is None
    entries = unpack_index(indexes[A])
    assert [(e.offset, e.position) for e in entries] == [(0, 0), (4, 2 * len(big)), (8, 4 * len(big))]
    assert 5 * len(big) > INDEX_EVERY_BYTES


async def test_a_partition_is_given_up_with_its_bytes(buffer, make_batch):
    buffer.put(A, make_batch(b"a"))
    buffer.put(B, make_batch(b"b"))
    before = buffer.bytes
    [taken] = buffer.take_partition(A)
    assert taken.topic_partition == A
    assert buffer.bytes == before - taken.size
    assert buffer.take_partition(A) == []
    assert list(buffer.appends) == [B]


async def test_a_request_of_several_batches_is_one_append(buffer, make_batch):
    buffer.put(A, make_batch(b"a", b"b") + make_batch(b"c"))
    [share] = lay_out_inline(buffer, EPOCHS)
    assert share.records == 3


async def test_refusing_twice_or_an_answered_one_is_harmless(buffer, make_batch):
    buffer.put(A, make_batch(b"a"))
    [pending] = buffer.appends[A]
    pending.refuse(ValueError("first"))
    pending.refuse(ValueError("second"))
    assert str(pending.future.exception()) == "first"
