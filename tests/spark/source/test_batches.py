"""Batch headers in compiled code, against the ones in Python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.errors import CorruptBatch
from millpond.reading import reader
from millpond.reading.visible import visible
from millpond.records import Codec, Record, build_batch, build_control_batch, with_append_time
from millpond.records.markers import MarkerKind
from millpond.spark.kernels import batches, scan
from millpond.spark.kernels.sections import lay_out

MARKER = build_control_batch(MarkerKind.COMMIT, 5, 0, timestamp=7)


def some_batch(count: int, codec: Codec, append_time: bool) -> bytes:
    data = build_batch([Record(b"v%d" % n * 10, b"k", timestamp=n) for n in range(count)], compression=codec)
    return with_append_time(data, 123) if append_time else data


a_batch = st.one_of(
    st.just(MARKER),
    st.builds(
        some_batch, st.integers(1, 5), st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]), st.booleans()
    ),
)
a_buffer = st.lists(a_batch, max_size=5).map(b"".join)


@settings(deadline=None)
@given(a_buffer, st.integers(0, 2**40), st.integers(0, 2**30), st.booleans())
def test_settling_is_what_it_is_in_python(data, base_offset, epoch, stamped):
    compiled, python = bytearray(data), bytearray(data)
    following = batches.settle(compiled, base_offset, epoch, stamped)
    assert following == reader.settle(python, base_offset, epoch, stamped)
    assert compiled == python


@settings(deadline=None)
@given(a_buffer, st.data())
def test_damage_is_found_as_in_python(data, draw):
    if not data:
        return
    damaged = bytearray(data)
    at = draw.draw(st.integers(0, len(data) - 1))
    damaged[at] ^= draw.draw(st.integers(1, 255))
    cut = damaged[: draw.draw(st.integers(0, len(data)))] if draw.draw(st.booleans()) else damaged
    try:
        expected = reader.settle(bytearray(cut), 0, 0, True)
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            batches.settle(cut, 0, 0, True)
    else:
        assert batches.settle(cut, 0, 0, True) == expected


@settings(deadline=None)
@given(st.lists(a_buffer, max_size=4), st.integers(1, 400))
def test_messages_are_those_that_are_visible(buffers, bytes_max):
    offset = 0
    for number, each in enumerate(buffers):
        buffers[number] = bytearray(each)
        offset = batches.settle(buffers[number], offset, 0, False)
    expected = scan.scan(lay_out(list(visible(buffers, ()))))
    groups = list(batches.messages_in_groups(iter(buffers), bytes_max=bytes_max))
    for name in ("offset", "timestamp", "key_length", "value_length", "header_count"):
        found = [value for each in groups for value in getattr(scan.scan(each), name)]
        assert found == list(getattr(expected, name))
    assert [t for each in groups for t in each.append_time] == list(
        lay_out(list(visible(buffers, ()))).append_time
    )


def test_a_group_holds_no_more_than_asked_for():
    one = build_batch([Record(b"x" * 900, timestamp=1)])
    buffer = bytearray(one * 10)
    batches.settle(buffer, 0, 0, False)
    groups = list(batches.messages_in_groups([buffer, bytearray(one)], bytes_max=3 * len(one)))
    assert [len(each.count) for each in groups] == [3, 3, 3, 2]
    assert groups[0].data.base is not None
    assert len(groups[0].data) == len(buffer), "a part of a buffer is pointed at, not copied"


def test_a_batch_cannot_claim_more_records_than_it_has_bytes_for():
    data = bytearray(build_batch([Record(b"v", timestamp=1)], base_offset=9))
    data[57:61] = (2**30).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="the batch at offset 9 claims 1073741824 records") as refused:
        list(batches.messages_in_groups([data], bytes_max=1_000))
    assert refused.value.facts["offset"] == 9
