"""Batch headers in compiled code, against the ones in Python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.errors import CorruptBatch
from millpond.reading import reader
from millpond.reading.visible import visible
from millpond.records import Codec, Record, build_batch, build_control_batch, stamp_run, with_append_time
from millpond.records.markers import MarkerKind
from millpond.spark.kernels import batches, scan
from millpond.spark.kernels.sections import to_sections

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


def in_order(data: bytes) -> bytes:
    """The same batches, stamped from offset 0 on."""
    stamped = bytearray(data)
    stamp_run(stamped, 0, 0)
    return bytes(stamped)


@settings(deadline=None)
@given(a_buffer, st.integers(0, 2**40), st.integers(0, 2**30), st.booleans())
def test_settling_is_what_it_is_in_python(data, base_offset, epoch, stamped):
    data = in_order(data) if stamped else data
    base_offset = 0 if stamped else base_offset
    compiled, python = bytearray(data), bytearray(data)
    following = batches.check_and_stamp(compiled, base_offset, epoch, stamped)
    assert following == reader.check_and_stamp(python, base_offset, epoch, stamped)
    assert compiled == python


@settings(deadline=None)
@given(a_buffer, st.data())
def test_damage_is_found_as_in_python(data, draw):
    if not data:
        return
    damaged = bytearray(in_order(data))
    at = draw.draw(st.integers(0, len(data) - 1))
    damaged[at] ^= draw.draw(st.integers(1, 255))
    cut = damaged[: draw.draw(st.integers(0, len(data)))] if draw.draw(st.booleans()) else damaged
    try:
        expected = reader.check_and_stamp(bytearray(cut), 0, 0, True)
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            batches.check_and_stamp(cut, 0, 0, True)
    else:
        assert batches.check_and_stamp(cut, 0, 0, True) == expected


def placed(*bases: int) -> bytearray:
    """Batches of ten records at these offsets."""
    return bytearray(
        b"".join(build_batch([Record(b"v", timestamp=1)] * 10, base_offset=base) for base in bases)
    )


def settled(data: bytearray, base_offset: int) -> list[int | str]:
    """What follows, or what is wrong, by either way."""
    found: list[int | str] = []
    for check_and_stamp in (reader.check_and_stamp, batches.check_and_stamp):
        try:
            found.append(check_and_stamp(bytearray(data), base_offset, 0, True))
        except CorruptBatch as error:
            found.append(error.facts["reason"])
    return found


def test_stamped_batches_may_leave_gaps():
    assert settled(placed(20, 40, 50), 20) == settled(placed(20, 40, 50), 0) == [60, 60]


@pytest.mark.parametrize(
    ("bases", "reason"),
    [
        ((19, 40), "a batch holds offsets 19 to 28 where 20 is next"),
        ((20, 29), "a batch holds offsets 29 to 38 where 30 is next"),
        ((20, 40, 20), "a batch holds offsets 20 to 29 where 50 is next"),
        ((20, 2**40, 40), f"a batch holds offsets 40 to 49 where {2**40 + 10} is next"),
        ((20, -(2**63) + 30), f"a batch holds offsets {-(2**63) + 30} to {-(2**63) + 39} where 30 is next"),
        ((20, 2**63 - 10, 40), f"a batch holds offsets 40 to 49 where {2**63} is next"),
        ((2**63 - 1, 40), f"a batch holds offsets 40 to 49 where {2**63 + 9} is next"),
    ],
)
def test_stamped_batches_that_do_not_follow_one_another_are_damage(bases, reason):
    assert settled(placed(*bases), 20) == [reason, reason]


def test_what_follows_a_stamped_batch_is_no_smaller_number_because_it_is_too_large():
    assert settled(placed(20, 2**63 - 1), 20) == [2**63 + 9, 2**63 + 9]


@settings(deadline=None)
@given(st.lists(a_buffer, max_size=4), st.integers(1, 400))
def test_messages_are_those_that_are_visible(buffers, bytes_max):
    offset = 0
    for number, each in enumerate(buffers):
        buffers[number] = bytearray(each)
        offset = batches.check_and_stamp(buffers[number], offset, 0, False)
    expected = scan.scan(to_sections(list(visible(buffers, ()))))
    groups = list(batches.messages_in_groups(iter(buffers), bytes_max=bytes_max))
    for name in ("offset", "timestamp", "key_length", "value_length", "header_count"):
        found = [value for each in groups for value in getattr(scan.scan(each), name)]
        assert found == list(getattr(expected, name))
    assert [t for each in groups for t in each.append_time] == list(
        to_sections(list(visible(buffers, ()))).append_time
    )


def test_a_group_holds_no_more_than_asked_for():
    one = build_batch([Record(b"x" * 900, timestamp=1)])
    buffer = bytearray(one * 10)
    batches.check_and_stamp(buffer, 0, 0, False)
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
