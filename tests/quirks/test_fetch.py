"""Fetch: what comes back, when, and in which form."""

import asyncio
import struct

import pytest
from tests.quirks.client import (
    MIB,
    READ_COMMITTED,
    Client,
    batch_of,
    fetch_request,
    headers,
    values,
)
from tests.quirks.wire import settle

from millpond.protocol import LENGTH_BYTES, ErrorCode, encode_response
from millpond.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from millpond.records import Codec
from millpond.testing import running_broker

UNKNOWN_ID = bytes(range(1, 17))
LONG_MS = 60_000
LARGE = 500
FIRST_FLEXIBLE, FIRST_BY_ID = 12, 13
EVERY_VERSION = range(4, 19)


async def filled(client, *letters):
    """A topic with one batch for each letter, and the size of a batch."""
    await client.topic()
    await client.append("orders", *(letter * LARGE for letter in letters))
    return len(batch_of(b"a" * LARGE))


# -- sessions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, -1])
async def test_sessions_are_declined_by_answering_with_session_zero(client, epoch):
    """A consumer that asks for a session (epoch 0) and gets 0 back sends all its partitions each time, as KIP-227
    allows; Java, librdkafka and franz-go all do."""
    await filled(client, b"a")
    answer = await client.ask(fetch_request("orders", session_id=0, session_epoch=epoch), 11)
    assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, 0)
    assert values(answer.responses[0].partitions[0]) == [(0, b"a" * LARGE)]


@pytest.mark.parametrize("session", [0, 123_456])
async def test_an_unknown_session_is_not_found(client, session):
    """A consumer that comes from another broker, or from before a restart, goes on with its session: this code, for
    the whole answer, makes it begin anew."""
    await filled(client, b"a")
    answer = await client.ask(fetch_request("orders", session_id=session, session_epoch=1), 11)
    assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


# -- limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [{"partition_max_bytes": 1}, {"max_bytes": 1}, {"partition_max_bytes": 0}])
async def test_a_fetch_returns_one_batch_although_it_is_larger_than_the_limits(client, limit):
    """Otherwise a consumer is stuck for ever at a record larger than it expected (KIP-74)."""
    await filled(client, b"a", b"b")
    assert values(await client.fetch("orders", 1, **limit)) == [(1, b"b" * LARGE)]


async def test_only_the_first_partition_with_data_may_pass_the_limit(client):
    """The others would make the answer larger without need, and each is the first another time."""
    await client.topic(partitions=3)
    for partition in (1, 2):
        await client.produce("orders", batch_of(b"a" * LARGE), partition)
    parts = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=MIB) for n in range(3)]
    topics = [FetchTopic(topic="orders", partitions=parts)]
    answer = await client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics), 11)
    found = {part.partition_index: len(values(part)) for part in answer.responses[0].partitions}
    assert found == {0: 0, 1: 1, 2: 0}


async def test_batches_come_whole_and_as_many_as_fit(client):
    """A cut batch at the end was the form of old versions; newer clients call it corrupt."""
    size = await filled(client, b"a", b"b", b"c")
    for limit in ({"partition_max_bytes": 2 * size + 9}, {"max_bytes": 2 * size + 9}):
        part = await client.fetch("orders", **limit)
        assert [header.base_offset for header in headers(part)] == [0, 1]
        assert sum(map(len, part.records)) == 2 * size


async def test_an_offset_in_the_middle_of_a_batch_gets_the_whole_batch(client):
    """Consumers pass over what they have: batches are compressed as one, so no broker can cut them."""
    await client.topic()
    await client.produce("orders", batch_of(b"a", b"b", b"c"))
    assert values(await client.fetch("orders", 1)) == [(0, b"a"), (1, b"b"), (2, b"c")]


# -- waiting --------------------------------------------------------------------------------------------------


async def test_a_fetch_waits_for_its_min_bytes(client):
    """A broker that answers at once makes every idle consumer ask a thousand times a second."""
    size = await filled(client, b"a")
    request = fetch_request("orders", 1, max_wait_ms=LONG_MS, min_bytes=size + 1)
    sent = client.send(request, 11)
    waiting = asyncio.create_task(client.receive())
    async with client.another() as other:
        await other.append("orders", b"b" * LARGE)
        await settle()
        assert not waiting.done()
        await other.append("orders", b"c" * LARGE)
    answer = client.read(request, 11, await waiting, sent)
    assert [offset for offset, _ in values(answer.responses[0].partitions[0])] == [1, 2]


async def test_a_fetch_that_waits_long_enough_answers_with_what_there_is(client):
    """`max_wait_ms` is a promise: clients close a connection that is silent for much longer."""
    await filled(client, b"a")
    part = await client.fetch("orders", 0, max_wait_ms=20, min_bytes=MIB)
    assert len(values(part)) == 1
    part = await client.fetch("orders", 1, max_wait_ms=20)
    assert (part.error_code, values(part), part.high_watermark) == (ErrorCode.NONE, [], 1)


async def test_a_partition_with_an_error_is_answered_at_once(client):
    """Its consumer has to do something about it, however long the others would wait."""
    await filled(client, b"a")
    part = await client.fetch("orders", 9, max_wait_ms=LONG_MS)
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    part = await client.fetch("nowhere", max_wait_ms=LONG_MS)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- forms ----------------------------------------------------------------------------------------------------


async def test_no_records_are_an_empty_field_and_never_null(client):
    """Kafka writes an empty field, whose length is 0 in the old form and 1 in the compact one. The protocol would
    allow null, and clients that have never seen it here stumble over it."""
    await filled(client, b"a")
    at_end = fetch_request("orders", 1, topic_id=await client.topic_id())
    for version in EVERY_VERSION:
        client.send(at_end, version)
        raw = await client.receive()
        if version < FIRST_FLEXIBLE:
            assert raw.endswith(struct.pack(">i", 0)), version
        else:
            assert raw.endswith(b"\x01" + b"\0" * 3), (
                version
            )  # tags of the partition, the topic and the answer


async def test_aborted_transactions_are_null_unless_only_committed_records_are_read(client):
    """An empty list says that there is nothing to leave out, null that nobody looked: so does Kafka, in every
    version."""
    await filled(client, b"a")
    known = await client.topic_id()
    for version in EVERY_VERSION:
        plain = await client.fetch("orders", version=version, topic_id=known)
        assert plain.aborted_transactions is None
        committed = await client.fetch(
            "orders", version=version, topic_id=known, isolation_level=READ_COMMITTED
        )
        assert committed.aborted_transactions == []


async def test_every_version_returns_the_same_records(client):
    """Consumers use anything from v4 (old sarama) to v18 (Java 4.2)."""
    await filled(client, b"a", b"b")
    known = await client.topic_id()
    for version in EVERY_VERSION:
        part = await client.fetch("orders", 0, version=version, topic_id=known)
        assert [offset for offset, _ in values(part)] == [0, 1]
        assert (part.high_watermark, part.last_stable_offset) == (2, 2)
        assert part.log_start_offset == (0 if version >= 5 else -1)


@pytest.mark.parametrize("version", [12, 16, 18])
async def test_leaders_and_endpoints_are_not_written_when_nobody_is_to_go_elsewhere(client, version):
    """They are tagged (KIP-951, KIP-595): a stray tag, or one at the wrong nesting as KafScale had it, sends a
    consumer to a broker that does not exist."""
    await filled(client, b"a")
    request = fetch_request("orders", 0, topic_id=await client.topic_id())
    sent = client.send(request, version)
    raw = await client.receive()
    answer = client.read(request, version, raw, sent)
    part = answer.responses[0].partitions[0]
    assert answer.node_endpoints == []
    assert (part.current_leader, part.diverging_epoch, part.snapshot_id) == (None, None, None)
    untagged = b"".join(bytes(each) for each in encode_response(answer, version, sent).buffers)
    assert raw == untagged[LENGTH_BYTES:]


# -- which topic, which place ---------------------------------------------------------------------------------


async def test_topics_go_by_id_from_v13_and_unknown_ids_are_told_as_such(client):
    """Who returns ids in Metadata must know them here (KIP-516): librdkafka goes on asking by id. A topic that was
    made again under the same name is another one."""
    await filled(client, b"a")
    known = await client.topic_id()
    assert len(values(await client.fetch("", version=FIRST_BY_ID, topic_id=known))) == 1
    for unknown in (UNKNOWN_ID, bytes(16)):
        part = await client.fetch("", version=FIRST_BY_ID, topic_id=unknown)
        assert (part.error_code, part.high_watermark) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)
    await client.broker.log.delete_topic("orders")
    await client.topic()
    part = await client.fetch("", version=FIRST_BY_ID, topic_id=known)
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_offsets_outside_the_log_are_out_of_range_and_tell_no_others(client):
    """Spark's failOnDataLoss and every `auto.offset.reset` hang on this code. Kafka's watermarks in it are -1."""
    await filled(client, b"a", b"b", b"c")
    for offset in (-2, -1, 4, 999):
        part = await client.fetch("orders", offset)
        assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (-1, -1, -1)


async def test_the_end_of_the_log_is_in_range(client):
    """Consumers sit there most of the time."""
    await filled(client, b"a")
    part = await client.fetch("orders", 1)
    assert (part.error_code, values(part)) == (ErrorCode.NONE, [])


async def test_what_was_deleted_is_out_of_range(client):
    """DeleteRecords and retention both move the start; a batch that straddles it must not come back as if new."""
    await filled(client, b"a", b"b", b"c")
    topic_partition = client.broker.log.topics.partition("orders", 0)
    await client.broker.log.delete_records(topic_partition, 2)
    assert (await client.fetch("orders", 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    part = await client.fetch("orders", 2)
    assert ([offset for offset, _ in values(part)], part.log_start_offset) == ([2], 2)


async def test_zstandard_needs_fetch_v10(client):
    """An older consumer would take the bytes for garbage (KIP-110); it is told which codec it lacks instead."""
    await client.topic()
    await client.produce("orders", batch_of(b"a", compression=Codec.ZSTD))
    for version in range(4, 13):
        part = await client.fetch("orders", version=version)
        code = ErrorCode.NONE if version >= 10 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert (part.error_code, len(headers(part))) == (code, 1 if code == ErrorCode.NONE else 0)


async def test_whoever_says_it_is_a_follower_is_sent_away(client):
    """There is nobody to replicate to. A consumer is -1, or -2 when somebody debugs."""
    await filled(client, b"a")
    known = await client.topic_id()
    for replica, code in ((-1, 0), (-2, 0), (5, ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        old = await client.fetch("orders", replica_id=replica)
        state = ReplicaState(replica_id=replica)
        new = await client.fetch("", version=15, topic_id=known, replica_state=state)
        assert (old.error_code, new.error_code) == (code, code)


async def test_partitions_are_answered_in_the_order_in_which_they_were_asked(client):
    """Consumers turn their partitions themselves, so that each comes first in its turn."""
    await client.topic(partitions=3)
    parts = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=MIB) for n in (2, 0, 1)]
    topics = [FetchTopic(topic="orders", partitions=parts)]
    answer = await client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), 11)
    assert [part.partition_index for part in answer.responses[0].partitions] == [2, 0, 1]


async def test_a_fetch_of_nothing_is_answered(client):
    """Java's incremental fetches have no topics when nothing changed."""
    answer = await client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[]), 11)
    assert (answer.error_code, answer.responses) == (ErrorCode.NONE, [])


# -- leader epochs --------------------------------------------------------------------------------------------


async def epochs(client):
    """The leader epoch as each request tells it."""
    metadata = await client.metadata("orders")
    listed = await client.list_offset("orders", -1)
    newest = headers(await client.fetch("orders"))[-1].leader_epoch
    return metadata.topics[0].partitions[0].leader_epoch, listed.leader_epoch, newest


async def test_the_leader_epoch_is_the_same_wherever_it_is_told(client):
    """Java and librdkafka compare them with each other (KIP-320), and take any difference for a lost log."""
    await filled(client, b"a")
    (epoch,) = set(await epochs(client))
    end = await client.end_of_epoch("orders", epoch)
    assert (end.error_code, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, epoch, 1)
    assert (await client.fetch("orders", current_leader_epoch=epoch)).error_code == ErrorCode.NONE


async def test_leader_epochs_never_go_backwards_over_restarts_and_old_ones_are_fenced(tmp_path):
    """Java and librdkafka ignore metadata with an older epoch than they know, so going back would hide the broker
    from them. An epoch behind ours is fenced, one ahead of ours unknown: both make them look again."""
    seen = []
    for run in range(3):
        async with running_broker(tmp_path, kafka=True) as broker, Client(broker) as client:
            if run == 0:
                await client.topic()
            await client.append("orders", b"a")
            metadata, listed, newest = await epochs(client)
            assert metadata == listed == newest
            batches = [header.leader_epoch for header in headers(await client.fetch("orders"))]
            assert batches == [*seen, metadata]
            for old in {epoch for epoch in seen if epoch < metadata}:
                await check_epoch(client, old, ErrorCode.FENCED_LEADER_EPOCH)
            await check_epoch(client, metadata + 1, ErrorCode.UNKNOWN_LEADER_EPOCH)
            await check_epoch(client, metadata, ErrorCode.NONE)
            seen.append(metadata)
    assert seen == sorted(seen)


async def check_epoch(client, epoch, code):
    assert (await client.fetch("orders", current_leader_epoch=epoch)).error_code == code
    assert (await client.list_offset("orders", -1, epoch=epoch)).error_code == code
    assert (await client.end_of_epoch("orders", 0, current=epoch)).error_code == code


async def test_the_end_of_an_epoch_nobody_reached_is_unknown(client):
    """-1 and -1 without an error: the Java consumer then knows that its position needs another look."""
    await filled(client, b"a")
    (epoch,) = set(await epochs(client))
    for unknown in (epoch + 5, -1):
        end = await client.end_of_epoch("orders", unknown)
        assert (end.error_code, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, -1, -1)


async def test_who_has_read_from_a_later_epoch_than_ours_is_out_of_range(client):
    """It has records of a log that is not this one (KIP-595)."""
    await filled(client, b"a", b"b")
    (epoch,) = set(await epochs(client))
    ours = await client.fetch("orders", 1, version=12, last_fetched_epoch=epoch)
    assert [offset for offset, _ in values(ours)] == [1]
    other = await client.fetch("orders", 1, version=12, last_fetched_epoch=epoch + 5)
    assert other.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
