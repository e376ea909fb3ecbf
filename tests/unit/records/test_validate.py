"""What a broker accepts of a producer: each rule, just inside and just outside."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.model.errors import (
    CorruptBatch,
    InvalidInput,
    InvalidRecord,
    RecordTooLarge,
    UnsupportedCompression,
)
from millpond.records import (
    BatchHeader,
    Codec,
    MarkerKind,
    Record,
    build_batch,
    build_control_batch,
    read_header,
    validate,
)
from millpond.records.batch import HEADER, seal

LIMIT = 1 << 20
IDEMPOTENT = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
PLAIN = build_batch([Record(b"one"), Record(b"two"), Record(b"three")], now_ms=1000)


def changed(batch: bytes = PLAIN, **fields: int) -> bytes:
    """The batch with other header fields and a checksum that covers them."""
    out = bytearray(batch)
    HEADER.pack_into(out, 0, *read_header(batch)._replace(**fields))
    seal(out, 0, len(out))
    return bytes(out)


def accepted(batch: bytes, **options: bool) -> list[tuple[int, BatchHeader]]:
    return validate(batch, max_batch_bytes=LIMIT, **options)


def refused(batch: bytes, match: str) -> None:
    with pytest.raises(InvalidRecord, match=match):
        accepted(batch)


def test_good_batches_come_back_with_their_places() -> None:
    assert accepted(PLAIN * 2) == [(0, read_header(PLAIN)), (len(PLAIN), read_header(PLAIN))]


def test_nothing_is_not_a_batch() -> None:
    refused(b"", "no batch")


@pytest.mark.parametrize("codec", Codec)
def test_cut_at_any_byte_it_is_corrupt(codec: Codec) -> None:
    batch = build_batch([Record(b"value" * 20)] * 3, compression=codec)
    for end in range(1, len(batch)):
        with pytest.raises(CorruptBatch):
            accepted(batch[:end])


def test_garbage_after_a_batch_is_corrupt() -> None:
    for tail in (b"\x00", b"garbage", PLAIN[:-1]):
        with pytest.raises(CorruptBatch):
            accepted(PLAIN + tail)


def test_every_flipped_bit_outside_the_stamped_fields_is_noticed() -> None:
    stamped = {*range(8 * 8), *range(12 * 8, 16 * 8)}
    for index in set(range(len(PLAIN) * 8)) - stamped:
        batch = bytearray(PLAIN)
        batch[index // 8] ^= 1 << index % 8
        with pytest.raises(CorruptBatch):
            accepted(bytes(batch))


def test_one_bad_batch_spoils_the_run() -> None:
    with pytest.raises(CorruptBatch, match="CRC32C"):
        accepted(PLAIN + PLAIN[:-1] + b"?")


def test_the_size_limit_is_of_each_whole_batch() -> None:
    assert len(validate(PLAIN * 2, max_batch_bytes=len(PLAIN))) == 2
    with pytest.raises(RecordTooLarge) as raised:
        validate(PLAIN, max_batch_bytes=len(PLAIN) - 1)
    assert raised.value.facts == {"size": len(PLAIN), "limit": len(PLAIN) - 1}


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(number: int) -> None:
    with pytest.raises(UnsupportedCompression, match=str(number)):
        accepted(changed(attributes=number))


@pytest.mark.parametrize(("count", "delta"), [(3, 3), (3, 1), (2, 2), (0, -1), (-1, -2), (0, 0)])
def test_count_and_last_offset_must_agree(count: int, delta: int) -> None:
    refused(changed(record_count=count, last_offset_delta=delta), "last offset delta")


def test_the_smallest_records_there_are_just_fit() -> None:
    batch = build_batch([Record(None)] * 10)
    assert len(batch) == 61 + 70
    assert accepted(batch)[0][1].record_count == 10
    refused(changed(batch, record_count=11, last_offset_delta=10), "cannot fit")


@pytest.mark.parametrize("codec", Codec)
def test_the_densest_honest_batch_passes_and_an_inflated_count_does_not(codec: Codec) -> None:
    batch = build_batch([Record(bytes(1_000_000))], compression=codec)
    most = (len(batch) - 61) * {0: 1, 1: 1032, 2: 22, 3: 255, 4: 32768}[codec] // 7
    most = min(most, 2**31 - 1)
    assert accepted(changed(batch, record_count=most, last_offset_delta=most - 1))
    if most < 2**31 - 1:
        refused(changed(batch, record_count=most + 1, last_offset_delta=most), "cannot fit")


@pytest.mark.parametrize("codec", Codec)
def test_many_smallest_records_pass_under_every_codec(codec: Codec) -> None:
    batch = build_batch([Record(None)] * 50_000, compression=codec)
    assert accepted(batch)[0][1].record_count == 50_000


@pytest.mark.parametrize(
    ("base", "newest"), [(0, 0), (-1, -1), (-1, 5), (5, 5), (5, 9), (5, -1), (5, 4), (5, 0)]
)
def test_times_that_are_fine(base: int, newest: int) -> None:
    assert accepted(changed(base_timestamp=base, max_timestamp=newest))


@pytest.mark.parametrize(("base", "newest"), [(-2, 0), (-2, -2), (0, -2), (5, -2), (-(1 << 63), 0)])
def test_times_that_are_not(base: int, newest: int) -> None:
    refused(changed(base_timestamp=base, max_timestamp=newest), "timestamps")


def test_a_producer_may_not_set_append_time() -> None:
    refused(changed(attributes=0x08), "append time")


def test_a_producer_may_not_set_a_delete_horizon() -> None:
    refused(changed(attributes=0x40), "delete horizon")


def test_a_producer_may_not_write_markers_but_the_broker_may() -> None:
    marker = build_control_batch(MarkerKind.ABORT, producer_id=5, producer_epoch=0, timestamp=1)
    refused(marker, "control")
    assert accepted(marker, allow_control=True)[0][1].is_control


def test_attributes_nobody_has_defined_yet_are_left_alone_as_kafka_does() -> None:
    assert accepted(changed(attributes=0x80))


def test_an_idempotent_producer_has_epoch_and_sequence() -> None:
    assert accepted(changed(**IDEMPOTENT))
    refused(changed(**(IDEMPOTENT | {"producer_epoch": -1})), "producer epoch")
    refused(changed(**(IDEMPOTENT | {"base_sequence": -1})), "base sequence")


def test_control_batches_need_an_epoch_too() -> None:
    marker = build_control_batch(MarkerKind.ABORT, producer_id=5, producer_epoch=-1, timestamp=1)
    with pytest.raises(InvalidRecord, match="producer epoch"):
        accepted(marker, allow_control=True)


def test_a_transaction_has_a_producer() -> None:
    assert accepted(changed(attributes=0x10, **IDEMPOTENT))
    refused(changed(attributes=0x10), "producer id -1")


def test_a_producer_id_below_minus_one_is_refused() -> None:
    refused(changed(producer_id=-2), "producer id -2")


@settings(max_examples=300)
@given(noise=st.binary(max_size=200), position=st.integers(0, len(PLAIN)))
def test_noise_anywhere_is_refused_with_one_of_our_errors(noise: bytes, position: int) -> None:
    candidate = PLAIN[:position] + noise + PLAIN[position + len(noise) :]
    try:
        [(_, header)] = accepted(candidate)
    except InvalidInput:
        return
    assert candidate[16:] == PLAIN[16:]
    assert header[4:] == read_header(PLAIN)[4:]
