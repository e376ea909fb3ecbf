"""What most tests here say to a broker, in a sentence each. Answers are the one partition that was asked about."""

import dataclasses
import struct
from typing import Any

from tests.quirks.wire import Wire

from millpond.broker import Broker
from millpond.protocol import NO_UUID
from millpond.protocol.messages import fetch as fetching
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from millpond.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from millpond.protocol.messages.transactions import InitProducerIdRequest
from millpond.records import BatchHeader, Record, build_batch, crc32c, iter_records, walk

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
READ_COMMITTED = 1
MIB = 1024 * 1024
CRC_AT, CRC_FROM = 17, 21


class Client(Wire):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.kafka_node)
        self.broker = broker

    def another(self) -> "Client":
        return Client(self.broker)

    async def topic(self, name: str = "orders", partitions: int = 1, **configs: str) -> str:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        await self.broker.log.create_topic(name, partitions, overrides)
        return name

    async def metadata(self, *names: str, version: int = 12, create: bool = False) -> Any:
        asked = [MetadataRequestTopic(name=name) for name in names]
        return await self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=create), version)

    async def topic_id(self, name: str = "orders") -> bytes:
        answer = await self.metadata(name)
        return bytes(answer.topics[0].topic_id)

    async def produce(
        self, topic: str, batch: bytes | None, partition: int = 0, *, version: int = 9, **rest: Any
    ) -> Any:
        answer = await self.ask(produce_request(topic, batch, partition, **rest), version)
        return answer.responses[0].partition_responses[0]

    async def append(self, topic: str, *values: bytes) -> int:
        """One batch for each value; the offset of the last."""
        offset = -1
        for value in values:
            answer = await self.produce(topic, batch_of(value))
            assert answer.error_code == 0, answer
            offset = answer.base_offset
        return offset

    async def fetch(self, topic: str, offset: int = 0, *, version: int = 11, **rest: Any) -> Any:
        answer = await self.ask(fetch_request(topic, offset, **rest), version)
        assert answer.error_code == 0, answer
        return answer.responses[0].partitions[0]

    async def list_offset(
        self, topic: str, timestamp: int, *, version: int = 7, epoch: int = -1, isolation: int = 0
    ) -> Any:
        part = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=topic, partitions=[part])],
        )
        return (await self.ask(request, version)).topics[0].partitions[0]

    async def end_of_epoch(self, topic: str, epoch: int, *, current: int = -1) -> Any:
        part = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
        topics = [OffsetForLeaderTopic(topic=topic, partitions=[part])]
        answer = await self.ask(OffsetForLeaderEpochRequest(topics=topics), 4)
        return answer.topics[0].partitions[0]

    async def new_producer(
        self, name: str | None = None, *, timeout_ms: int = 60_000, version: int = 4, **known: int
    ) -> Any:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **known)
        return await self.ask(request, version)


def batch_of(*values: bytes, **rest: Any) -> bytes:
    return build_batch([Record(value) for value in values], **{"now_ms": 1_000, **rest})


def patched(batch: bytes, at: int, form: str, value: int) -> bytes:
    """The batch with one field changed, and its CRC made right again."""
    data = bytearray(batch)
    struct.pack_into(form, data, at, value)
    struct.pack_into(">I", data, CRC_AT, crc32c(bytes(data[CRC_FROM:])))
    return bytes(data)


def produce_request(
    topic: str,
    batch: bytes | None,
    partition: int = 0,
    *,
    acks: int = -1,
    transactional_id: str | None = None,
    topic_id: bytes = NO_UUID,
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def fetch_request(topic: str, offset: int = 0, *, topic_id: bytes = NO_UUID, **rest: Any) -> Any:
    """Fields of the request or of its only partition go by their names; it does not wait unless told to."""
    names = {each.name for each in dataclasses.fields(fetching.FetchPartition)}
    mine = {name: rest.pop(name) for name in list(rest) if name in names}
    whole: dict[str, Any] = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": MIB, **mine}
    asked = fetching.FetchTopic(topic=topic, topic_id=topic_id, partitions=[fetching.FetchPartition(**whole)])
    return fetching.FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": [asked], **rest})


def headers(part: Any) -> list[BatchHeader]:
    """Of the batches in a fetched partition."""
    return [header for _, header in walk(_bytes(part))]


def values(part: Any) -> list[tuple[int, bytes | None]]:
    """Offset and value of each record in a fetched partition; markers have none."""
    records = iter_records(_bytes(part), decompressed_bytes_max=MIB)
    return [(each.offset, each.value) for each in records]


def _bytes(part: Any) -> bytes:
    return b"".join(bytes(each) for each in part.records or ())
