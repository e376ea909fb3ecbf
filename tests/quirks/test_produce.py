"""Produce: which batches are taken, and with which code the others are refused."""

import itertools

import pytest
from tests.quirks.client import MIB, batch_of, headers, patched, produce_request

from millpond.model.record_errors import RECORD_ERRORS_MAX
from millpond.protocol import LENGTH_BYTES, ErrorCode, encode_response
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.records import Codec, Record, build_batch, build_control_batch
from millpond.records.markers import MarkerKind

MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_DELTA_AT, COUNT_AT = 16, 17, 21, 23, 57
UNKNOWN_ID = bytes(range(1, 17))
GOOD = batch_of(b"a", b"b")

REFUSED = {
    "a wrong CRC": (GOOD[:-1] + bytes((GOOD[-1] ^ 1,)), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (patched(GOOD, MAGIC_AT, ">b", 0), ErrorCode.INVALID_RECORD),
    "magic 1": (patched(GOOD, MAGIC_AT, ">b", 1), ErrorCode.INVALID_RECORD),
    "magic 3": (patched(GOOD, MAGIC_AT, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    "cut short": (GOOD[:-3], ErrorCode.INVALID_RECORD),
    "only half a header": (GOOD[:30], ErrorCode.INVALID_RECORD),
    "empty": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "more records than there are": (patched(GOOD, COUNT_AT, ">i", 5), ErrorCode.INVALID_RECORD),
    "fewer records than there are": (patched(GOOD, COUNT_AT, ">i", 1), ErrorCode.INVALID_RECORD),
    "no records": (patched(GOOD, COUNT_AT, ">i", 0), ErrorCode.INVALID_RECORD),
    "a wrong last delta": (patched(GOOD, LAST_DELTA_AT, ">i", 7), ErrorCode.INVALID_RECORD),
    "an unknown codec": (patched(GOOD, ATTRIBUTES_AT, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_bad_batches_are_refused_with_the_code_that_says_whether_to_send_again(client, case):
    """CORRUPT_MESSAGE makes producers send the same bytes again, INVALID_RECORD makes them give up: a broker that
    mixes them up has clients that never stop, or that lose a batch a cable had damaged."""
    batch, code = REFUSED[case]
    await client.topic()
    answer = await client.produce("orders", batch)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert (await client.produce("orders", GOOD)).base_offset == 0


async def test_a_batch_may_be_exactly_as_large_as_the_topic_allows(client):
    """Producers are told to make their batches as large as this, header included: one byte off breaks them."""
    await client.topic(max_message_bytes="1000")
    overhead = len(batch_of(b"a" * 900)) - 900
    exact, larger = batch_of(b"a" * (1000 - overhead)), batch_of(b"a" * (1001 - overhead))
    assert (len(exact), len(larger)) == (1000, 1001)
    assert (await client.produce("orders", larger)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (await client.produce("orders", exact)).error_code == ErrorCode.NONE


async def test_what_counts_for_the_limit_is_the_batch_as_it_is_sent(client):
    """Kafka measures compressed bytes. A broker that unpacked first would refuse what producers may send."""
    await client.topic(max_message_bytes="1000")
    batch = batch_of(b"a" * 5000, compression=Codec.GZIP)
    assert (await client.produce("orders", batch)).error_code == ErrorCode.NONE


async def test_a_keyless_record_on_a_compacted_topic_is_named_by_its_place_in_the_batch(client):
    """Kafka Connect and Streams keep their state in compacted topics. From v8 on Java producers fail only the record
    that is named (KIP-467) and tell the others that they were in bad company."""
    await client.topic(cleanup_policy="compact")
    records = [Record(b"a", b"k"), Record(b"b"), Record(b"c", b"k"), Record(b"d")]
    batch = build_batch(records, now_ms=1_000)
    answer = await client.produce("orders", batch, version=8)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    for each in answer.record_errors:
        assert "without a key" in each.batch_index_error_message
    assert answer.error_message
    keyed = build_batch([Record(b"a", b"k")], now_ms=1_000)
    assert (await client.produce("orders", keyed)).error_code == ErrorCode.NONE


async def test_records_with_wrong_times_are_named_by_their_places_in_the_batch(client, clock):
    await client.topic(message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    now_ms = clock.now_ms()
    times = [now_ms, now_ms + 1_001, now_ms - 1_000, now_ms - 1_001, -1]
    batch = build_batch([Record(b"a", timestamp=time) for time in times], now_ms=now_ms)
    answer = await client.produce("orders", batch, version=8)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in answer.record_errors] == [1, 3]
    assert "outside the limits" in answer.record_errors[0].batch_index_error_message


async def test_a_response_names_no_more_bad_records_than_it_may(client):
    """Producers that name their batches' sizes in megabytes could otherwise ask for responses as large."""
    await client.topic("logs", partitions=3, cleanup_policy="compact")
    batch = build_batch([Record(b"")] * (RECORD_ERRORS_MAX - 1), now_ms=1_000)
    named = [len((await client.produce("logs", batch, version=8)).record_errors)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name="logs",
                partition_data=[PartitionProduceData(index=number, records=batch) for number in range(3)],
            )
        ],
    )
    [topic] = (await client.ask(request, 8)).responses
    named += [len(each.record_errors) for each in topic.partition_responses]
    assert named == [RECORD_ERRORS_MAX - 1, RECORD_ERRORS_MAX - 1, 1, 1]


async def test_zstandard_needs_produce_v7(client):
    """A producer that old could not read its own records back (KIP-110)."""
    await client.topic()
    for version in range(3, 13):
        answer = await client.produce("orders", batch_of(b"a", compression=Codec.ZSTD), version=version)
        code = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert answer.error_code == code, version


@pytest.mark.parametrize("codec", list(Codec))
async def test_a_batch_keeps_its_compression_and_its_bytes(client, codec):
    """A broker that repacked batches would break the CRC that consumers check, and Java's framing of snappy."""
    await client.topic()
    batch = batch_of(b"a" * 100, b"b" * 100, compression=codec)
    assert (await client.produce("orders", batch)).error_code == ErrorCode.NONE
    part = await client.fetch("orders")
    assert b"".join(bytes(each) for each in part.records)[CRC_AT:] == batch[CRC_AT:]


async def test_only_the_broker_writes_control_batches(client):
    """A client that could write a marker could end another one's transaction."""
    await client.topic()
    marker = build_control_batch(MarkerKind.COMMIT, 5, 0, 1_000)
    assert (await client.produce("orders", marker)).error_code != ErrorCode.NONE
    plain = patched(GOOD, ATTRIBUTES_AT, ">h", 1 << 5)
    assert (await client.produce("orders", plain)).error_code == ErrorCode.INVALID_RECORD
    assert (await client.fetch("orders")).high_watermark == 0


async def test_a_transactional_batch_needs_a_transactional_id(client):
    """The batch names only a producer; who may write for it is known by the transactional id."""
    await client.topic()
    batch = batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    for version in (3, 9, 12):
        answer = await client.produce("orders", batch, version=version)
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_unknown_topics_and_partitions_are_told_apart_from_the_rest_of_the_request(client):
    """Each partition has its own answer, and the good ones are written."""
    await client.topic(partitions=2)
    good = produce_request("orders", GOOD, 1).topic_data[0].partition_data
    bad = produce_request("orders", GOOD, 9).topic_data[0].partition_data
    nowhere = produce_request("nowhere", GOOD).topic_data[0]
    named = produce_request("orders", GOOD).topic_data[0]
    named.partition_data = [*bad, *good]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[nowhere, named])
    for version in range(3, 13):
        answer = await client.ask(request, version)
        rows = [part for each in answer.responses for part in each.partition_responses]
        assert [(row.index, row.error_code) for row in rows] == [
            (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (1, ErrorCode.NONE),
        ]


async def test_topics_go_by_id_in_produce_v13(client):
    """A producer that holds an id must never write into a topic that was deleted and made again under its name
    (KIP-516)."""
    await client.topic()
    known = await client.topic_id()
    assert (await client.produce("", GOOD, version=13, topic_id=known)).error_code == ErrorCode.NONE
    for unknown in (UNKNOWN_ID, bytes(16)):
        answer = await client.produce("", GOOD, version=13, topic_id=unknown)
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    await client.broker.log.delete_topic("orders")
    await client.topic()
    answer = await client.produce("", GOOD, version=13, topic_id=known)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_the_log_start_is_told_from_v5_and_the_append_time_only_where_it_is_the_brokers(client, clock):
    """Producers take any append time but -1 for the record's own: told wrongly, it replaces their timestamps."""
    await client.topic()
    await client.topic("stamped", message_timestamp_type="LogAppendTime")
    answers = {version: await client.produce("orders", GOOD, version=version) for version in (4, 5)}
    assert [each.log_start_offset for each in answers.values()] == [-1, 0]
    assert {each.log_append_time_ms for each in answers.values()} == {-1}
    stamped = await client.produce("stamped", GOOD)
    assert stamped.log_append_time_ms == clock.now_ms()
    (header,) = headers(await client.fetch("stamped"))
    assert (header.has_append_time, header.max_timestamp) == (True, clock.now_ms())


async def test_leaders_and_endpoints_are_not_written_when_nobody_is_to_go_elsewhere(client):
    """They are tagged fields of v10 and later (KIP-951). Tansu wrote empty ones, and clients went to node 0."""
    await client.topic()
    known = await client.topic_id()
    for version, partition in itertools.product(range(10, 14), (0, 9)):
        request = produce_request("orders", GOOD, partition, topic_id=known)
        sent = client.send(request, version)
        raw = await client.receive()
        answer = client.read(request, version, raw, sent)
        assert answer.node_endpoints == []
        assert answer.responses[0].partition_responses[0].current_leader is None
        untagged = b"".join(encode_response(answer, version, sent).buffers)
        assert raw == untagged[LENGTH_BYTES:]


async def test_a_request_for_nothing_is_answered(client):
    """Nothing to do is no mistake."""
    answer = await client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]), 9)
    assert answer.responses == []


async def test_several_batches_of_one_partition_get_consecutive_offsets(client):
    """Kafka wants one batch for each partition and takes no second; here none of them is lost."""
    await client.topic()
    assert (await client.produce("orders", GOOD + batch_of(b"c"))).base_offset == 0
    twice = produce_request("orders", batch_of(b"d"))
    twice.topic_data[0].partition_data *= 2
    rows = (await client.ask(twice, 9)).responses[0].partition_responses
    assert [each.base_offset for each in rows] == [3, 4]
    assert (await client.fetch("orders", partition_max_bytes=MIB)).high_watermark == 5
