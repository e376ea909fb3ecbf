"""Holes that a review found, each closed and kept so."""

import asyncio

from tests.quirks.client import Client, batch_of, fetch_request
from tests.quirks.transaction import TransactionalClient

from millpond.catalog import partitions
from millpond.catalog import topics as catalog_topics
from millpond.catalog.groups import GroupOffset
from millpond.catalog.sqlite import SqliteDatabase
from millpond.log import FetchRequest
from millpond.protocol import encode_request
from millpond.protocol.messages import topics as wire
from millpond.records import Codec, Record, build_batch
from millpond.testing import Faults, SimulatedClock, running_broker

DAY_MS = 86_400_000


async def send_and_leave(broker, request, version):
    """A client that does not wait for the answer."""
    async with Client(broker) as client:
        client.send(request, version)
        await client._writer.drain()


async def settled(broker):
    """Until nobody is connected and nothing is being changed."""
    async with asyncio.timeout(10):
        while broker.kafka._connections or broker.log._changes.under_way:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)


def created(name):
    topic = wire.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return wire.CreateTopicsRequest(topics=[topic], timeout_ms=1000)


async def test_a_topic_whose_creator_has_left_is_known(tmp_path):
    async with running_broker(tmp_path, kafka=True) as broker:
        for number in range(10):
            await send_and_leave(broker, created(f"t{number}"), 5)
        await settled(broker)
        rows = await broker.log.read(catalog_topics.all_topics)
        assert rows
        assert {topic.name for topic in rows} == {topic.name for topic in broker.log.topics.all()}


async def test_a_topic_whose_deleter_has_left_is_gone(tmp_path):
    async with running_broker(tmp_path, kafka=True) as broker:
        for number in range(10):
            await broker.log.create_topic(f"t{number}")
            await send_and_leave(
                broker, wire.DeleteTopicsRequest(topic_names=[f"t{number}"], timeout_ms=1000), 3
            )
        await settled(broker)
        rows = await broker.log.read(catalog_topics.all_topics)
        assert {topic.name for topic in rows} == {topic.name for topic in broker.log.topics.all()}


async def test_partitions_and_records_change_for_those_who_left_too(tmp_path):
    async with running_broker(tmp_path, kafka=True) as broker:
        await broker.log.create_topic("a")
        where = broker.log.topics.partition("a", 0)
        await broker.log.append(where, batch_of(b"x"))
        more = wire.CreatePartitionsTopic(name="a", count=3, assignments=None)
        await send_and_leave(broker, wire.CreatePartitionsRequest(topics=[more], timeout_ms=1000), 1)
        part = wire.DeleteRecordsPartition(partition_index=0, offset=1)
        below = wire.DeleteRecordsTopic(name="a", partitions=[part])
        await send_and_leave(broker, wire.DeleteRecordsRequest(topics=[below], timeout_ms=1000), 2)
        await settled(broker)
        topic = await broker.log.read(lambda tx: catalog_topics.find(tx, "a"))
        row = await broker.log.read(lambda tx: partitions.read(tx, where))
        assert broker.log.topics.named("a").partitions == topic.partitions
        assert broker.log.partition(where).log_start == row.log_start


async def test_a_clock_that_jumps_deletes_no_offsets_ids_or_transactions():
    clock = SimulatedClock()
    async with running_broker(clock=clock, kafka=True) as broker, TransactionalClient(broker) as client:
        await client.topic()
        await client.begin()
        await client.add()
        await client.send_values(b"a")
        where = broker.log.topics.partition("orders", 0)
        await broker.groups.commit_offsets("g", [GroupOffset(where, 42)])
        clock.jump(8 * DAY_MS)
        assert await broker.groups.expire_once() == 0
        assert await broker.transactions.forget_unused() == 0
        assert await broker.transactions.abort_timed_out() == 0
        assert (await broker.groups.committed_offsets("g")).offsets[where].offset == 42
        assert (await client.end(commit=True)).error_code == 0


async def test_slow_reads_of_the_store_hold_up_no_coordinator():
    faults = Faults()
    async with running_broker(faults=faults, inline_bytes_max=1, tail_bytes_max=1) as broker:
        log = broker.log
        await log.create_topic("old", 4)
        wheres = [log.topics.partition("old", number) for number in range(4)]
        for where in wheres:
            await log.append(where, batch_of(b"x" * 100))
        holds = [faults.hold("read") for _ in wheres]
        reads = [
            asyncio.create_task(log.fetch([FetchRequest(where, 0, 1000)], bytes_max=1000)) for where in wheres
        ]
        for hold in holds:
            await asyncio.to_thread(hold.wait_reached)
        async with asyncio.timeout(10):
            await broker.groups.committed_offsets("g")
            await log.last_stable_offset(wheres[0])
            await log.create_topic("new")
            first = batch_of(b"i", producer_id=77, producer_epoch=0, base_sequence=0)
            await log.append(wheres[1], bytearray(first))
        for hold in holds:
            hold.release()
        await asyncio.gather(*reads)


async def test_looking_for_keys_does_not_stop_the_loop():
    records = [Record(value=b"", key=b"k")] * 200_000
    batch = build_batch(records, now_ms=1000, compression=Codec.ZSTD)
    async with running_broker() as broker:
        await broker.log.create_topic("compacted", 1, {"cleanup.policy": "compact"})
        where = broker.log.topics.partition("compacted", 0)
        appending = asyncio.create_task(broker.log.append(where, batch))
        turns = 0
        while not appending.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await appending).base_offset == 0
        assert turns > 10, "the loop went on meanwhile"


async def test_a_change_during_a_refresh_is_not_missed(tmp_path):
    async with running_broker(tmp_path) as broker:
        log = broker.log
        await log.create_topic("orders")
        real, read, go_on = log._threads.read, asyncio.Event(), asyncio.Event()

        async def slow(function):
            answer = await real(function)
            read.set()
            await go_on.wait()
            return answer

        log._threads.read = slow
        log._view.on_foreign_change()
        await read.wait()
        other = SqliteDatabase(tmp_path / "catalog.db")
        with other.write() as tx:
            catalog_topics.create(tx, "foreign", 1, {}, now_ms=1, owner=broker.session)
        other.close()
        log._view.on_foreign_change()  # while the first refresh has read, and not yet taken in
        log._threads.read = real
        go_on.set()
        async with asyncio.timeout(10):
            while not log.topics.knows("foreign"):
                await asyncio.sleep(0.01)


async def padded_poll(client, padding):
    request = fetch_request("orders", 1, max_wait_ms=300_000)
    frame = b"".join(bytes(part) for part in encode_request(request, 11, 1, "x").buffers)[4:]
    client.write_framed(frame + bytes(padding))
    await client._writer.drain()


async def test_who_waits_holds_no_memory():
    """A long poll may be followed by padding; and who has been answered keeps nothing either."""
    async with running_broker(kafka=True) as broker:
        await broker.log.create_topic("orders")
        async with Client(broker) as idle, Client(broker) as waiting:
            await idle.produce("orders", batch_of(b"x" * 500_000))
            await broker.log.delete_records(broker.log.topics.partition("orders", 0), 1)
            await padded_poll(waiting, 400_000)
            async with asyncio.timeout(10):
                while not any(connection._answers for connection in broker.kafka._connections):
                    await asyncio.sleep(0.01)
            assert broker.kafka._held_bytes == 0
            for connection in broker.kafka._connections:
                inner = connection._serving.get_coro()
                while inner is not None:
                    frame = getattr(inner, "cr_frame", None)
                    assert frame is None or not isinstance(frame.f_locals.get("frame"), bytearray)
                    inner = getattr(inner, "cr_await", None)


async def test_a_damaged_group_row_ends_no_service():
    insert = """
        INSERT INTO groups (group_id, shard, generation, protocol_type, state, members, updated_at)
        VALUES ('bad', 0, 1, 'consumer', 'Stable', '{}', 0)
    """
    async with running_broker() as broker:
        await broker.log.write(lambda tx: tx.rows(insert) and None)
        object.__setattr__(broker.groups._limits, "expiry_every_ms", 1)
        expiry = asyncio.create_task(broker.groups._repeat_expiry())
        await asyncio.sleep(0.2)
        assert not expiry.done()
        expiry.cancel()
        await asyncio.wait([expiry])


async def test_a_broker_without_its_services_says_that_it_failed(monkeypatch):
    async def broken(self):
        raise KeyError("a bug")

    monkeypatch.setattr("millpond.groups.Groups.run", broken)
    async with running_broker() as broker:
        error = await asyncio.wait_for(broker.failed(), 10)
        assert "a service ended" in str(error)


async def test_a_later_plain_commit_wins_over_an_open_transaction():
    """As in Kafka, where the later record of the two counts."""
    async with running_broker(kafka=True) as broker, TransactionalClient(broker) as client:
        await client.topic()
        await client.begin()
        where = broker.log.topics.partition("orders", 0)
        assert await client.add_offsets("g") == 0
        assert await client.commit_offset("g", 100) == 0
        await broker.groups.commit_offsets("g", [GroupOffset(where, 150)])
        assert (await client.end(commit=True)).error_code == 0
        assert (await broker.groups.committed_offsets("g")).offsets[where].offset == 150


async def test_an_aborted_list_that_went_with_its_records_is_not_taken_for_empty():
    async with running_broker(kafka=True) as broker, TransactionalClient(broker) as client:
        await client.topic()
        await client.begin()
        await client.write(b"secret", commit=False)
        await client.write(b"fine", commit=True)
        log = broker.log
        where = log.topics.partition("orders", 0)
        await log.last_stable_offset(where)
        log.partition(where).ongoing._aborted_from = 10  # as after a thousand aborted ones
        real = log._fetcher._read_catalog

        async def after_a_deletion(function):
            await log.delete_records(where, 2)
            return await real(function)

        log._fetcher._read_catalog = after_a_deletion
        [result] = await log.fetch([FetchRequest(where, 0, 10**6)], bytes_max=10**6, read_committed=True)
        assert result.error is not None
