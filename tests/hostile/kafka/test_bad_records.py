"""Batches that lie, inside requests that do not. The engine's own answers are tested in `test_bad_input.py`; here
each must reach the client as its error, and cost the others nothing."""

import struct

import pytest
from tests.hostile.kafka.siege import (
    PRODUCE_VERSION,
    produce_request,
    send_batch,
    values_at,
    written,
)

from millpond.model.clock import SystemClock
from millpond.protocol import ErrorCode
from millpond.records import Codec, Record, build_batch, crc32c

CRC_FIELD, CRC_START, COUNT_FIELD, LAST_DELTA_FIELD = 17, 21, 57, 23
LENGTH_FIELD, MAGIC_FIELD, PRODUCER_FIELD, SEQUENCE_FIELD = 8, 16, 43, 53
RECORDS = [Record(b"value", key=b"key")]


def batch(*changes, records=RECORDS, sealed=True, **options):
    made = bytearray(build_batch(records, **options))
    for position, kind, value in changes:
        struct.pack_into(kind, made, position, value)
    if sealed:
        struct.pack_into(">I", made, CRC_FIELD, crc32c(memoryview(made)[CRC_START:]))
    return bytes(made)


LIES = {
    "no records": None,
    "no batch": b"",
    "half a header": batch()[:30],
    "a bit of the checksum": batch((CRC_FIELD, ">I", 1), sealed=False),
    "magic 0": batch((MAGIC_FIELD, ">b", 0)),
    "magic 1": batch((MAGIC_FIELD, ">b", 1)),
    "magic 3": batch((MAGIC_FIELD, ">b", 3)),
    "magic -1": batch((MAGIC_FIELD, ">b", -1)),
    "length 0": batch((LENGTH_FIELD, ">i", 0)),
    "length -1": batch((LENGTH_FIELD, ">i", -1)),
    "length 2^31-1": batch((LENGTH_FIELD, ">i", 2**31 - 1)),
    "count 0": batch((COUNT_FIELD, ">i", 0)),
    "count -1": batch((COUNT_FIELD, ">i", -1)),
    "count 2^31-1": batch((COUNT_FIELD, ">i", 2**31 - 1)),
    "count and delta 2^31-1": batch((COUNT_FIELD, ">i", 2**31 - 1), (LAST_DELTA_FIELD, ">i", 2**31 - 2)),
    "delta 2^31-1": batch((LAST_DELTA_FIELD, ">i", 2**31 - 1)),
    "delta -1": batch((LAST_DELTA_FIELD, ">i", -1)),
    "an unknown codec": batch((CRC_START, ">h", 7)),
    "a control batch": batch((CRC_START, ">h", 0x20)),
    "a transaction nobody began": batch(
        (CRC_START, ">h", 0x10), (PRODUCER_FIELD, ">q", 7), (SEQUENCE_FIELD, ">i", 0)
    ),
    "producer -2": batch((PRODUCER_FIELD, ">q", -2)),
    "a sequence without a producer's epoch": batch((PRODUCER_FIELD, ">q", 5), (SEQUENCE_FIELD, ">i", -9)),
    "timestamps from the end of time": batch((27, ">q", 2**63 - 1), (35, ">q", 2**63 - 1)),
    "timestamps from before time": batch((27, ">q", -(2**63)), (35, ">q", -(2**63))),
    "a batch behind it that is none": batch() + b"\xff" * 100,
    "noise": bytes(range(256)) * 8,
}


def test_a_batch_that_lies_gets_an_error_and_takes_no_offset(attacked_broker):
    with attacked_broker("batches that lie") as siege:
        siege.create_topic("lies")
        with siege.attacker() as client:
            for kind, lie in LIES.items():
                answer = send_batch(client, "lies", lie)
                assert answer.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR), kind
                assert answer.base_offset == -1, kind
            assert send_batch(client, "lies", batch()).base_offset == 0


def test_without_acknowledgement_an_error_closes_the_connection(attacked_broker):
    """As Kafka does: there is no answer that could tell, and the client must learn that something was lost."""
    with attacked_broker("lies that want no answer") as siege:
        siege.create_topic("silent")
        for kind, lie in LIES.items():
            with siege.attacker() as client:
                client.send(written(produce_request("silent", lie, acks=0), PRODUCE_VERSION))
                assert client.receive() is None, kind
        with siege.attacker() as client:
            client.send(written(produce_request("silent", batch(), acks=0), PRODUCE_VERSION))
            assert send_batch(client, "silent", batch()).base_offset == 1, "an answer to something else came"


@pytest.mark.parametrize("acks", [2, -2, 2**15 - 1, -(2**15)])
def test_acks_that_do_not_exist_are_refused(attacked_broker, acks):
    with attacked_broker("acks that do not exist") as siege:
        siege.create_topic("acks")
        with siege.attacker() as client:
            assert (
                send_batch(client, "acks", batch(), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
            )
            assert send_batch(client, "acks", batch()).base_offset == 0


def noise(now_ms):
    made = bytearray(build_batch([Record(b"v" * 50, key=b"k")] * 4, now_ms=now_ms))
    made[61:] = bytes((7 * n) % 251 for n in range(len(made) - 61))
    struct.pack_into(">I", made, CRC_FIELD, crc32c(memoryview(made)[CRC_START:]))
    return bytes(made)


def test_records_that_are_none_are_stored_unread_or_refused_where_they_are_read(attacked_broker):
    """Counts and header are right, and so is the checksum; the records are noise. The broker reads no records, unless
    their topic is compacted or their header is old."""
    made, old = noise(SystemClock().now_ms()), noise(1_000)
    with attacked_broker("records that are none") as siege:
        siege.create_topic("plain")
        siege.create_topic("compacted", cleanup_policy="compact")
        with siege.attacker() as client:
            assert send_batch(client, "plain", made).error_code == ErrorCode.NONE
            assert send_batch(client, "plain", old).error_code == ErrorCode.INVALID_RECORD
            refused = send_batch(client, "compacted", made).error_code
            assert refused in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
            assert send_batch(client, "plain", batch()).base_offset == 4
            assert values_at(client, "plain", 4) == [b"value"]


@pytest.fixture(scope="module")
def bombs():
    """A hundred mebibytes of noughts in a few KiB; 64 MiB are what the broker unpacks at most."""
    nothing = [Record(bytes(100 << 20), key=b"k")]
    return {codec: build_batch(nothing, compression=codec) for codec in (Codec.GZIP, Codec.ZSTD)}


def test_a_compressed_bomb_is_refused_where_the_broker_looks_inside(attacked_broker, bombs):
    with attacked_broker("bombs for a compacted topic") as siege:
        siege.create_topic("bombed", cleanup_policy="compact", max_message_bytes=str(100 << 20))
        with siege.attacker() as client:
            for codec, bomb in bombs.items():
                answer = send_batch(client, "bombed", bomb)
                assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE, codec
                siege.good.prove()


def test_a_compressed_bomb_is_stored_or_refused_where_the_topic_has_a_codec_of_its_own(
    attacked_broker, bombs
):
    with attacked_broker("bombs for a topic with compression.type") as siege:
        siege.create_topic("bombed", compression_type="zstd", max_message_bytes=str(100 << 20))
        with siege.attacker() as client:
            for codec, bomb in bombs.items():
                answer = send_batch(client, "bombed", bomb)
                assert answer.error_code in (ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE), codec
                siege.good.prove()
