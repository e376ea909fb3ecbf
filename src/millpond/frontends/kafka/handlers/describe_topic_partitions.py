"""DescribeTopicPartitions (75), v0: returns partitions and leaders of topics, at most 2000 partitions in a response.

Topics are sorted by name; no names request all topics. If the response is full, its cursor names the topic and
partition to continue with, and the client sends it in its next request. A topic that does not exist has an error, like
one that the client may not describe; the latter are left out of the list of all topics.
"""

from collections.abc import Iterable
from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.internal_topics import CONSUMER_OFFSETS_TOPIC, all_topics, find_internal
from millpond.frontends.kafka.leaders import Leaders
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.model.acls import ResourceType
from millpond.model.errors import MillpondError, NotAuthorized
from millpond.model.ids import check_topic_name
from millpond.model.topics import Topic
from millpond.protocol import ErrorCode
from millpond.protocol.messages.topic_partitions import (
    DescribedTopicPartition,
    DescribedTopicPartitions,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    PartitionCursor,
)

PARTITIONS_MAX: Final = 2_000
"""Kafka's `max.request.partition.size.limit`."""
NO_NODE: Final = -1


@handles(DescribeTopicPartitionsRequest, rights=(DESCRIBE_TOPIC,))
async def describe_topic_partitions(
    call: KafkaCall, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        return DescribeTopicPartitionsResponse(
            topics=[_failed(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
        )
    await call.ensure_known(DESCRIBE_TOPIC, (topic.name for topic in request.topics))
    limit = max(1, min(request.response_partition_limit, PARTITIONS_MAX))
    page = _Page(call, cursor, limit, names_are_given=bool(request.topics))
    await page.fill(_names(call, request))
    return DescribeTopicPartitionsResponse(topics=page.topics + page.refused, next_cursor=page.next_cursor)


def _names(call: KafkaCall, request: DescribeTopicPartitionsRequest) -> list[str]:
    """The requested topics from that of the cursor on. It is one of them, even if the client does not name it."""
    named = {topic.name for topic in request.topics} or {topic.name for topic in all_topics(call.log.topics)}
    if request.cursor is None:
        return sorted(named)
    first = request.cursor.topic_name
    return sorted({name for name in named if name >= first} | ({first} if request.topics else set()))


class _Page:
    """One response while it is filled."""

    def __init__(
        self, call: KafkaCall, cursor: PartitionCursor | None, limit: int, *, names_are_given: bool
    ) -> None:
        self._call = call
        self._cursor = cursor
        self._names_are_given = names_are_given
        self._left = limit
        self._leaders = Leaders(call)
        self._turns = Turns()
        self.topics: list[DescribedTopicPartitions] = []
        self.refused: list[DescribedTopicPartitions] = []
        self.next_cursor: PartitionCursor | None = None

    async def fill(self, names: Iterable[str]) -> None:
        """Topics that the client may not describe are reported even behind a full page, as in Kafka."""
        async for name in self._turns.over(names):
            try:
                self._call.require(DESCRIBE_TOPIC, name)
            except NotAuthorized as error:
                if self._names_are_given:
                    self.refused.append(_failed(name, code_of(error)))
                continue
            if self.next_cursor is None:
                await self._add(name)

    async def _add(self, name: str) -> None:
        if self._left == 0:
            self.next_cursor = PartitionCursor(topic_name=name, partition_index=0)
            return
        try:
            check_topic_name(name)
            topics = self._call.log.topics
            topic = find_internal(topics, name) or topics.named(name)
        except MillpondError as error:
            if self._names_are_given:
                self.topics.append(_failed(name, code_of(error)))
            return
        await self._add_partitions(topic)

    async def _add_partitions(self, topic: Topic) -> None:
        cursor = self._cursor
        start = cursor.partition_index if cursor is not None and cursor.topic_name == topic.name else 0
        end = min(topic.partitions, start + self._left)
        partitions = [self._partition(topic, number) async for number in self._turns.over(range(start, end))]
        self._left -= len(partitions)
        self.topics.append(
            DescribedTopicPartitions(
                name=topic.name,
                topic_id=topic.id,
                is_internal=topic is CONSUMER_OFFSETS_TOPIC,
                partitions=partitions,
                topic_authorized_operations=self._call.operations(ResourceType.TOPIC, topic.name),
            )
        )
        if start < end < topic.partitions:
            self.next_cursor = PartitionCursor(topic_name=topic.name, partition_index=end)

    def _partition(self, topic: Topic, number: int) -> DescribedTopicPartition:
        """Java clients fail if a list is null, although the protocol allows it for two of them."""
        leader = self._leaders.of_topic(topic, number)
        if leader is None:
            return DescribedTopicPartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=number,
                leader_id=NO_NODE,
                replica_nodes=[self._call.services.node.id],
                isr_nodes=[],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        return DescribedTopicPartition(
            partition_index=number,
            leader_id=leader.node_id,
            leader_epoch=leader.epoch,
            replica_nodes=[leader.node_id],
            isr_nodes=[leader.node_id],
            eligible_leader_replicas=[],
            last_known_elr=[],
        )


def _failed(name: str, code: ErrorCode) -> DescribedTopicPartitions:
    return DescribedTopicPartitions(error_code=code, name=name, partitions=[])
