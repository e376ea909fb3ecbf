"""What ShareFetch and ShareAcknowledge have in common: the members of share groups that fetch from this broker, their
sessions, and their acknowledgements."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import KafkaError, code_of
from millpond.frontends.kafka.leaders import Leaders
from millpond.frontends.kafka.rights import READ_GROUP, READ_TOPIC
from millpond.frontends.kafka.turns import Turns
from millpond.model.errors import MillpondError, UnknownTopic
from millpond.model.ids import TopicId, TopicPartition
from millpond.protocol import ErrorCode
from millpond.protocol.messages.nodes import CurrentLeader, NodeEndpoint
from millpond.protocol.messages.share_fetch import AcknowledgementBatch
from millpond.queues import AckRange, AckRefusal, MemberName, all_saved, malformed

MEMBER_ID_LENGTH_MAX: Final = 36
RENEW_SINCE: Final = 2
NO_LEADER: Final = -1
RANGES_MAX: Final = 10_000
"""Ranges that a request acknowledges in one partition. A partition has fewer messages in flight."""
MALFORMED: Final = AckRange(-1, -1, ())
REFUSALS: Final = {
    AckRefusal.MALFORMED: ErrorCode.INVALID_REQUEST,
    AckRefusal.NOT_ACQUIRED: ErrorCode.INVALID_RECORD_STATE,
}

PARTITION_CODES: Final = frozenset(
    {
        *(ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
        *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID),
        *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.OFFSET_NOT_AVAILABLE),
        *(ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""What Kafka's Java client understands as the error of a partition in ShareFetch. Others end its `poll` with an
exception."""
PASSING: Final = frozenset(
    {
        *(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.UNSTABLE_OFFSET_COMMIT),
        *(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR),
    }
)
"""Of the other codes, those of trouble that passes."""

Acknowledgements = dict[TopicPartition, list[AckRange]]
"""What a request acknowledges in each partition that it names; empty for one that it only names."""


class AcknowledgingPartition(Protocol):
    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgingTopic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[AcknowledgingPartition]: ...


def member_name(call: KafkaCall, group_id: str | None, member_id: str | None) -> MemberName:
    """Raises unless the client may read as this member."""
    if group_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "there is no group id")
    call.require(READ_GROUP, group_id)
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a member id has 1 to {MEMBER_ID_LENGTH_MAX} characters")
    return MemberName(group_id, member_id)


async def acknowledgements_of(topics: Iterable[AcknowledgingTopic]) -> Acknowledgements:
    """A partition that is named twice is merged: librdkafka names it once to fetch and once to acknowledge."""
    found: Acknowledgements = {}
    turns = Turns()
    async for topic_partition, part in turns.over(_partitions(topics)):
        ranges = found.setdefault(topic_partition, [])
        batches = part.acknowledgement_batches
        if len(ranges) + len(batches) > RANGES_MAX:
            ranges[:] = [MALFORMED]
            continue
        ranges += [AckRange(each.first_offset, each.last_offset, each.acknowledge_types) for each in batches]
    return found


def _partitions(
    topics: Iterable[AcknowledgingTopic],
) -> Iterator[tuple[TopicPartition, AcknowledgingPartition]]:
    for topic in topics:
        for part in topic.partitions:
            yield TopicPartition(TopicId(topic.topic_id), part.partition_index), part


class Refused(NamedTuple):
    code: ErrorCode
    message: str


def partition_code(code: ErrorCode) -> ErrorCode:
    """The error of a partition in ShareFetch. Clients ask again after those that stand for others."""
    if code in PARTITION_CODES:
        return code
    return ErrorCode.KAFKA_STORAGE_ERROR if code in PASSING else ErrorCode.UNKNOWN_SERVER_ERROR


class ServedPartitions:
    """Which partitions a client may read here, and why it may not read the others. Valid for one request."""

    def __init__(self, call: KafkaCall) -> None:
        self._call = call
        self._leaders: Leaders | None = None
        self.refused: dict[TopicPartition, Refused] = {}

    def check(self, topic_partition: TopicPartition) -> bool:
        """Whether the client may read the partition. If not, `refused` has the reason."""
        call, (topic_id, number) = self._call, topic_partition
        try:
            call.require_topic(READ_TOPIC, "", topic_id, by_id=True)
            if not call.log.topics.knows_id(topic_id):
                self.refused[topic_partition] = Refused(
                    ErrorCode.UNKNOWN_TOPIC_ID, str(UnknownTopic(topic=topic_id.hex()))
                )
                return False
            call.topic_partition("", topic_id, number, by_id=True)
            call.log.partition(topic_partition)
        except MillpondError as error:
            self.refused[topic_partition] = Refused(code_of(error), str(error))
            return False
        return True

    def leader(self, topic_partition: TopicPartition, code: ErrorCode) -> CurrentLeader:
        """Which broker the client should ask instead, if the partition is refused because another one owns it."""
        found = None
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            self._leaders = self._leaders or Leaders(self._call)
            found = self._leaders.of(topic_partition)
        if found is None:
            return CurrentLeader(leader_id=NO_LEADER, leader_epoch=NO_LEADER)
        return CurrentLeader(leader_id=found.node_id, leader_epoch=found.epoch)

    def endpoints(self, leaders: Iterable[CurrentLeader]) -> list[NodeEndpoint]:
        wanted = {each.leader_id for each in leaders} - {NO_LEADER}
        if not wanted:
            return []
        return [
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port)
            for node in self._call.nodes()
            if node.id in wanted
        ]


class PendingAcks:
    """The acknowledgements of a request: applied when it begins, and answered when they are durable."""

    def __init__(self) -> None:
        self.codes: dict[TopicPartition, ErrorCode] = {}
        """Of the partitions with acknowledgements that have a result."""
        self._pending: dict[TopicPartition, asyncio.Future[None]] = {}

    async def apply(
        self,
        call: KafkaCall,
        name: MemberName,
        acks: Acknowledgements,
        served: ServedPartitions,
        *,
        is_renew_ack: bool,
    ) -> None:
        renews = is_renew_ack and call.version >= RENEW_SINCE
        turns = Turns()
        async for topic_partition, ranges in turns.over(acks.items()):
            if not ranges:
                continue
            if malformed(ranges, renews=renews):
                self.codes[topic_partition] = ErrorCode.INVALID_REQUEST
            elif not served.check(topic_partition):
                self.codes[topic_partition] = served.refused[topic_partition].code
            else:
                result = call.services.share_consumers.acknowledge(name, topic_partition, ranges)
                if isinstance(result, AckRefusal):
                    self.codes[topic_partition] = REFUSALS[result]
                else:
                    self._pending[topic_partition] = result

    async def results(self) -> dict[TopicPartition, ErrorCode]:
        """Wait until all are durable."""
        partitions, futures = list(self._pending), list(self._pending.values())
        for each, error in zip(partitions, await all_saved(futures), strict=True):
            self.codes[each] = ErrorCode.NONE if error is None else code_of(error)
        return self.codes


def end_session(call: KafkaCall, name: MemberName) -> None:
    """The member closes its session: release its locks."""
    call.services.share_sessions.close(name)
    call.services.share_consumers.release(name)
