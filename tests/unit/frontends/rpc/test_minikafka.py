"""MiniKafka's own service."""

from tests.unit.frontends.rpc.wire import serving

from millpond.records import Record, build_batch
from millpond.security import OPEN_ACCESS
from millpond.stubs import minikafka_pb2


async def test_a_minikafka_reader_gets_past_what_was_aborted():
    async with serving() as (broker, wire):
        await broker.messages.topic("t", access=OPEN_ACCESS)
        topic_partition = broker.log.topics.partition("t", 0)
        producer = await broker.transactions.begin_producer("x", 60_000)
        await broker.transactions.add_partitions(producer, [topic_partition])
        for number in range(8):
            batch = build_batch(
                [Record(b"x" * 900_000)],
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=number,
                transactional=True,
                now_ms=broker.clock.now_ms(),
            )
            await broker.log.append(topic_partition, batch)
        await broker.transactions.end(producer, commit=False, bump_epoch=False)
        await wire.produce("t", b"seen")
        read_from, found = 1, []
        for _ in range(10):
            request = minikafka_pb2.PollRequest(topic="t", read_from={"msg_number": read_from})
            answer = await wire("MiniKafka.Poll", request)
            found += [each.payload for each in answer.payloads]
            read_from = answer.new_read_from.msg_number
        assert (found, read_from) == ([b"seen"], 11)
