"""Reading records: absolute offsets and times, runs of batches, and the ways a batch can lie about itself."""

import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.errors import CorruptBatch, RecordTooLarge, UnsupportedCompression
from millpond.records import (
    HEADER_SIZE,
    Codec,
    MarkerKind,
    Record,
    build_batch,
    build_control_batch,
    iter_records,
    read_marker,
    stamp_run,
    with_append_time,
)
from millpond.records.batch import HEADER, seal

LIMIT = 1 << 20
BODY = bytes.fromhex("00 00 00 02 6b 02 76 00")  # attributes, time, offset, key "k", value "v", no headers


def read(batch: bytes) -> list[Record]:
    return list(iter_records(batch, decompressed_bytes_max=LIMIT))


def batch_of(payload: bytes, count: int = 1, last_delta: int | None = None, attributes: int = 0) -> bytes:
    """A batch with a good header and CRC around any payload at all."""
    delta = count - 1 if last_delta is None else last_delta
    length = HEADER_SIZE - 12 + len(payload)
    out = bytearray(HEADER.pack(0, length, -1, 2, 0, attributes, delta, 50, 99, -1, -1, -1, count) + payload)
    seal(out, 0, len(out))
    return bytes(out)


def sized(body: bytes) -> bytes:
    return bytes([len(body) * 2]) + body


def test_the_hand_made_record_is_good_so_that_its_variations_mean_something() -> None:
    assert read(batch_of(sized(BODY))) == [Record(b"v", key=b"k", timestamp=50, offset=0)]


def test_a_run_of_batches_is_one_stream_of_records() -> None:
    run = bytearray(
        build_batch([Record(b"a"), Record(b"b")], now_ms=1)
        + build_batch([Record(b"c")] * 3, now_ms=2, compression=Codec.ZSTD)
    )
    assert stamp_run(run, base_offset=100, leader_epoch=4) == 105
    assert [record.offset for record in read(bytes(run))] == [100, 101, 102, 103, 104]
    assert [record.timestamp for record in read(bytes(run))] == [1, 1, 2, 2, 2]


def test_append_time_overrules_the_producers() -> None:
    batch = with_append_time(build_batch([Record(b"a", timestamp=1), Record(b"b", timestamp=2)]), now_ms=77)
    assert [record.timestamp for record in read(batch)] == [77, 77]


def test_markers_are_not_records() -> None:
    marker = build_control_batch(MarkerKind.COMMIT, 1, 0, timestamp=5)
    assert [record.value for record in read(build_batch([Record(b"a")]) + marker)] == [b"a"]


def test_an_emptied_batch_has_no_records() -> None:
    assert read(batch_of(b"", count=0, last_delta=9)) == []


def test_the_limit_holds_for_each_batch_not_for_the_run() -> None:
    batch = build_batch([Record(bytes(1000))], compression=Codec.GZIP)
    assert len(list(iter_records(batch * 3, decompressed_bytes_max=1100))) == 3
    with pytest.raises(RecordTooLarge):
        list(iter_records(batch, decompressed_bytes_max=999))


MALFORMED = {
    "a length past the end": bytes([len(BODY) * 2 + 2]) + BODY,
    "a negative length": b"\x01" + BODY,
    "a length of two gigabytes": bytes.fromhex("feffffff0f") + BODY,
    "a length shorter than the body": bytes([len(BODY) * 2 - 2]) + BODY,
    "a varint without an end": b"\x80\x80\x80\x80\x80\x80",
    "an empty body": sized(b""),
    "only attributes": sized(b"\x00"),
    "a key longer than the record": sized(bytes.fromhex("00 00 00 20 6b 02 76 00")),
    "a key length of -2": sized(bytes.fromhex("00 00 00 03 02 76 00")),
    "a key of two gigabytes": sized(bytes.fromhex("00 00 00 fe ff ff ff 0f 02 76 00")),
    "a value longer than the record": sized(bytes.fromhex("00 00 00 02 6b 7e 76 00")),
    "a value length of -2": sized(bytes.fromhex("00 00 00 02 6b 03 00")),
    "a key length that points before the beginning": sized(bytes.fromhex("00 00 00 7f 02 76 00")),
    "a negative header count": sized(bytes.fromhex("00 00 00 02 6b 02 76 01")),
    "more headers than bytes": sized(bytes.fromhex("00 00 00 02 6b 02 76 04 02 68 01")),
    "two billion headers": sized(bytes.fromhex("00 00 00 02 6b 02 76 fe ff ff ff 0f")),
    "a header without a name": sized(bytes.fromhex("00 00 00 02 6b 02 76 02 01 01")),
    "a header name that is not UTF-8": sized(bytes.fromhex("00 00 00 02 6b 02 76 02 02 ff 01")),
    "a header value past the end": sized(bytes.fromhex("00 00 00 02 6b 02 76 02 02 68 08")),
    "bytes after the headers": sized(BODY + b"\x00"),
    "a negative offset delta": sized(bytes.fromhex("00 00 01 02 6b 02 76 00")),
    "an offset delta past the last": sized(bytes.fromhex("00 00 02 02 6b 02 76 00")),
    "a time beyond 64 bits": sized(bytes.fromhex("00 fe ff ff ff ff ff ff ff ff 01 00 02 6b 02 76 00")),
    "a second record that was not counted": sized(BODY) * 2,
    "no record at all": b"",
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_inside_is_corrupt(payload: bytes) -> None:
    with pytest.raises(CorruptBatch):
        read(batch_of(payload))


@pytest.mark.parametrize("count", [2, 1000, (1 << 31) - 1])
def test_a_missing_record_is_corrupt(count: int) -> None:
    with pytest.raises(CorruptBatch):
        read(batch_of(sized(BODY), count, last_delta=(1 << 31) - 1))


def test_a_negative_count_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="-1 records"):
        read(batch_of(b"", count=-1))


def test_two_records_of_one_offset_are_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="offset delta 0 after 0"):
        read(batch_of(sized(BODY) * 2, count=2))


def test_offsets_beyond_64_bits_are_corrupt() -> None:
    batch = bytearray(build_batch([Record(b"a"), Record(b"b")]))
    struct.pack_into(">q", batch, 0, (1 << 63) - 1)
    with pytest.raises(CorruptBatch, match="up to offset"):
        read(bytes(batch))


def test_an_unknown_codec_is_unsupported() -> None:
    with pytest.raises(UnsupportedCompression):
        read(batch_of(sized(BODY), attributes=5))


@pytest.mark.parametrize("codec", Codec)
def test_a_payload_cut_at_any_byte_is_corrupt(codec: Codec) -> None:
    records = [
        Record(b"value %d" % i, key=b"key", headers=(("name", b"x"), ("none", None))) for i in range(3)
    ]
    payload = build_batch(records, compression=codec)[HEADER_SIZE:]
    assert len(read(batch_of(payload, 3, attributes=codec))) == 3
    for end in range(len(payload)):
        with pytest.raises(CorruptBatch):
            read(batch_of(payload[:end], 3, attributes=codec))


@settings(max_examples=300)
@given(payload=st.binary(max_size=60), count=st.integers(0, 5), codec=st.integers(0, 4))
def test_noise_is_read_or_refused_and_nothing_else(payload: bytes, count: int, codec: int) -> None:
    with suppress(CorruptBatch, RecordTooLarge):
        assert len(read(batch_of(payload, count, attributes=codec))) == count


def test_lengths_that_lie_cost_no_memory() -> None:
    lies = [batch_of(MALFORMED[name]) for name in MALFORMED if "gigabytes" in name or "billion" in name]
    tracemalloc.start()
    try:
        for lie in lies:
            with pytest.raises(CorruptBatch):
                read(lie)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def marker_of(key: str, value: str) -> bytes:
    record = Record(bytes.fromhex(value), key=bytes.fromhex(key))
    return build_batch([record], producer_id=1, producer_epoch=0, transactional=True, control=True)


def test_a_marker_with_later_fields_is_still_read() -> None:
    assert read_marker(marker_of("00010001ff", "000100000009ffff")) == (MarkerKind.COMMIT, 9)


@pytest.mark.parametrize(("key", "value"), [("000000", "000000000000"), ("00000001", "00000000"), ("", "")])
def test_a_marker_cut_short_is_corrupt(key: str, value: str) -> None:
    with pytest.raises(CorruptBatch, match="cut short"):
        read_marker(marker_of(key, value))


def test_a_marker_of_an_unknown_type_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="type 2"):
        read_marker(marker_of("00000002", "000000000000"))


def test_data_is_not_a_marker() -> None:
    with pytest.raises(CorruptBatch, match="not a control batch"):
        read_marker(build_batch([Record(b"a")]))


def test_a_control_batch_of_two_records_is_no_marker() -> None:
    with pytest.raises(CorruptBatch, match="2 records"):
        read_marker(build_batch([Record(b"a")] * 2, control=True))
