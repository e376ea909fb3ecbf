"""A transactional producer made by hand: what a client library does for its user, step by step."""

from typing import Any

from tests.quirks.client import Client, batch_of

from millpond.broker import Broker
from millpond.protocol import ErrorCode
from millpond.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

OLD_PRODUCE, NEW_PRODUCE = 11, 12
OLD_END, NEW_END = 3, 5
"""From the newer on, writing adds the partition to the transaction and each end raises the epoch (KIP-890)."""


class TransactionalClient(Client):
    def __init__(self, broker: Broker, name: str = "mover") -> None:
        super().__init__(broker)
        self.name = name
        self.id, self.epoch, self.sequence = -1, -1, 0

    async def begin(self, **rest: Any) -> Any:
        """A new epoch for this name."""
        answer = await self.new_producer(self.name, **rest)
        assert answer.error_code == ErrorCode.NONE, answer
        self.id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0
        return answer

    async def add(self, topic: str = "orders", partition: int = 0, **other: Any) -> ErrorCode:
        whole: dict[str, Any] = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.id,
            "v3_and_below_producer_epoch": self.epoch,
            **{f"v3_and_below_{name}": value for name, value in other.items()},
        }
        topics = [AddPartitionsToTxnTopic(name=topic, partitions=[partition])]
        answer = await self.ask(AddPartitionsToTxnRequest(v3_and_below_topics=topics, **whole), 3)
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        return ErrorCode(rows[0].partition_error_code)

    async def send_values(
        self, *values: bytes, topic: str = "orders", version: int = OLD_PRODUCE, epoch: int | None = None
    ) -> tuple[ErrorCode, int]:
        """Error and offset of one transactional batch; its sequence follows the one before."""
        batch = batch_of(
            *values,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        answer = await self.produce(topic, batch, version=version, transactional_id=self.name)
        if answer.error_code == ErrorCode.NONE:
            self.sequence += len(values)
        return ErrorCode(answer.error_code), answer.base_offset

    async def end(self, *, commit: bool, version: int = OLD_END, **other: Any) -> Any:
        whole: dict[str, Any] = {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            **other,
        }
        return await self.ask(EndTxnRequest(committed=commit, **whole), version)

    async def write(self, *values: bytes, commit: bool = True) -> None:
        """A whole transaction."""
        assert await self.add() == ErrorCode.NONE
        code, _ = await self.send_values(*values)
        assert code == ErrorCode.NONE
        assert (await self.end(commit=commit)).error_code == ErrorCode.NONE

    async def add_offsets(self, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name, producer_id=self.id, producer_epoch=self.epoch, group_id=group
        )
        return ErrorCode((await self.ask(request, 3)).error_code)

    async def commit_offset(
        self, group: str, offset: int, *, topic: str = "orders", version: int = 3, **rest: Any
    ) -> ErrorCode:
        part = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        whole: dict[str, Any] = {
            "transactional_id": self.name,
            "group_id": group,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "topics": [TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
            **rest,
        }
        answer = await self.ask(TxnOffsetCommitRequest(**whole), version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)
