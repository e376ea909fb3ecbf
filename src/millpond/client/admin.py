"""Topics, groups, subscriptions, brokers, users and rights, on an event loop.

async with AsyncAdmin() as admin:
    await admin.create_topic("orders", partitions=4, configs={"retention.ms": "60000"})
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Literal, Self

from google.protobuf.message import Message as Proto

from millpond.client import arguments
from millpond.client.calls import ADMIN, Connections, ProtoResponse
from millpond.client.cluster import ClusterCalls
from millpond.client.consumer import ConsumerStart
from millpond.client.message import ReadFrom
from millpond.client.reprs import client_repr
from millpond.client.security import SecurityArguments, TlsArgument, TokenArgument
from millpond.client.security_administration import SecurityCalls
from millpond.client.sources import ServerAddresses
from millpond.client.subscriptions import SubscriptionCalls
from millpond.model.topics import check_partition_count
from millpond.stubs import admin_pb2 as pb

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Topic:
    """`configs` are those that are set for this topic."""

    name: str
    id: str
    partitions: int
    created_at_ms: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Partition:
    """`oldest` is the number of the oldest retained message, `next` the number that the next message will get."""

    partition: int
    oldest: int
    next: int
    size_bytes: int
    owner: str

    @property
    def messages(self) -> int:
        """How many numbers lie between `oldest` and `next`."""
        return self.next - self.oldest


@dataclass(frozen=True, slots=True)
class Config:
    """A config of a topic; `source` says whether it is set for the topic or a default."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, its partitions, and all its configs."""

    topic: Topic
    partitions: list[Partition]
    configs: list[Config]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, and its state as Kafka names it. `type` is the protocol of its members, "classic" or
    "consumer" (KIP-848)."""

    name: str
    state: str
    protocol_type: str
    type: str


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer that has joined a group, and the partitions that are assigned to it, by topic."""

    id: str
    client_id: str
    client_host: str
    assigned: Mapping[str, list[int]]


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """`read_from` is the number of the message that the group reads next. It is None, and so is the lag, if a
    member reads the partition and has committed nothing yet."""

    topic: str
    partition: int
    read_from: int | None
    next: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group, its members, and its position in each partition. `epoch` rises when members or their topics change; of
    a classic group it is the generation."""

    group: Group
    epoch: int
    members: list[Member]
    positions: list[GroupPosition]
    lag: int | None
    """The sum over all positions; None if one of them is unknown, or if there are none."""


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker, the addresses of its interfaces, and the number of its topics."""

    version: str
    cluster_id: str
    listeners: Mapping[str, str]
    topics: int


class AsyncAdmin(SubscriptionCalls, ClusterCalls, SecurityCalls):
    """Creates, describes, changes and deletes topics, groups, subscriptions, users, API tokens, ACLs and quotas, and
    describes brokers.

    A broker acts on a create or delete request at most once. If the response is lost, the call raises
    `OutcomeUnknown` or `TimedOut`: check the state before you repeat it.

    `address` is the broker to try first, or several; `timeout` is the maximum time for a call, including retries. `tls`
    is True, the path of a CA file or a `Tls`; `username` and `password`, or `token`, prove who you are."""

    def __init__(
        self,
        *,
        address: ServerAddresses = None,
        timeout: float = TIMEOUT_S,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        security = SecurityArguments(tls, username, password, token)
        self._connections = Connections(address, timeout, security)

    # -- topics -----------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic. Without `partitions` the broker chooses how many."""
        arguments.label("name", name)
        given = {} if configs is None else configs
        arguments.configs("configs", given)
        request = pb.CreateTopicRequest(name=name, partitions=_partitions(partitions), configs=given)
        return _topic(await self._call_at_most_once("CreateTopic", request, pb.Topic))

    async def list_topics(self) -> list[Topic]:
        """All topics, ordered by name."""
        found = await self._call("ListTopics", pb.ListTopicsRequest(), pb.ListTopicsResponse)
        return [_topic(each) for each in found.topics]

    async def describe_topic(self, name: str) -> TopicDescription:
        """A topic with its partitions and its configs."""
        request = pb.DescribeTopicRequest(name=arguments.label("name", name))
        found = await self._call("DescribeTopic", request, pb.TopicDescription)
        return TopicDescription(
            _topic(found.topic),
            [
                Partition(each.partition, each.oldest, each.next, each.size_bytes, each.owner)
                for each in found.partitions
            ],
            [Config(each.name, each.value, each.source) for each in found.configs],
        )

    async def alter_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str | None] | None = None
    ) -> Topic:
        """Add partitions, change configs (None resets to the default), or both."""
        changes = {} if configs is None else configs
        arguments.configs("configs", changes, (str, type(None)))
        request = pb.AlterTopicRequest(
            name=arguments.label("name", name),
            partitions=_partitions(partitions),
            set={key: value for key, value in changes.items() if value is not None},
            reset=[key for key, value in changes.items() if value is None],
        )
        return _topic(await self._call("AlterTopic", request, pb.Topic))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, its messages and its subscriptions."""
        request = pb.DeleteTopicRequest(name=arguments.label("name", name))
        await self._call_at_most_once("DeleteTopic", request, pb.DeleteTopicResponse)

    async def delete_messages(self, topic: str, *, before: int | None, partition: int = 0) -> int:
        """Delete the messages below number `before` (None: all of them). Returns the number of the oldest
        message left."""
        request = pb.DeleteMessagesRequest(
            topic=arguments.label("topic", topic),
            partition=arguments.integer("partition", partition, 0, arguments.UINT32_MAX),
            before=arguments.optional(arguments.integer, "before", before),
        )
        return (await self._call_at_most_once("DeleteMessages", request, pb.DeleteMessagesResponse)).oldest

    async def find_by_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """By partition: the number of the first message at or after a time, or the number that the next
        message will get."""
        at_ms = arguments.integer("timestamp_ms", timestamp_ms, -arguments.INT64_MAX)
        request = pb.FindByTimeRequest(topic=arguments.label("topic", topic), timestamp_ms=at_ms)
        found = await self._call("FindByTime", request, pb.FindByTimeResponse)
        return dict(enumerate(found.numbers))

    # -- groups -----------------------------------------------------------------------------------------------

    async def list_groups(self) -> list[Group]:
        """All groups, ordered by name."""
        found = await self._call("ListGroups", pb.ListGroupsRequest(), pb.ListGroupsResponse)
        return [_group(each) for each in found.groups]

    async def describe_group(self, name: str) -> GroupDescription:
        """A group with its members, its positions and its lag."""
        request = pb.DescribeGroupRequest(name=arguments.label("name", name))
        found = await self._call("DescribeGroup", request, pb.GroupDescription)
        return GroupDescription(
            _group(found.group),
            found.epoch,
            [_member(each) for each in found.members],
            [
                GroupPosition(
                    each.topic,
                    each.partition,
                    None if each.uncommitted else each.read_from,
                    each.next,
                    None if each.uncommitted else each.lag,
                )
                for each in found.positions
            ],
            None if found.lag_unknown else found.lag,
        )

    async def commit_positions(
        self,
        group: str,
        topic: str,
        read_from: ConsumerStart | None = None,
        *,
        offset: ReadFrom | None = None,
    ) -> None:
        """Set the positions of a group without members. They are given as for a consumer; numbers or offsets by
        partition set those of the partitions that they name."""
        arguments.label("group", group)
        arguments.label("topic", topic)
        start = arguments.required_start(read_from, offset)
        numbers = start if isinstance(start, dict) else await self._numbers_at(topic, start)
        request = pb.CommitPositionsRequest(group=group, topic=topic, read_from=numbers)
        await self._call("CommitPositions", request, pb.CommitPositionsResponse)

    async def _numbers_at(
        self, topic: str, start: Literal["earliest", "latest"] | int | datetime
    ) -> dict[int, int]:
        """By partition: the number of the message at a position."""
        if isinstance(start, datetime):
            return await self.find_by_time(topic, int(start.timestamp() * 1000))
        partitions = (await self.describe_topic(topic)).partitions
        if isinstance(start, int):
            return {each.partition: start for each in partitions}
        return {
            each.partition: each.oldest if start == arguments.EARLIEST else each.next for each in partitions
        }

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, with its positions."""
        request = pb.DeleteGroupRequest(name=arguments.label("name", name))
        await self._call_at_most_once("DeleteGroup", request, pb.DeleteGroupResponse)

    # -- the broker -------------------------------------------------------------------------------------------

    async def describe_broker(self) -> BrokerDescription:
        """The broker that responds: its version, its cluster and its listeners."""
        found = await self._call("DescribeBroker", pb.DescribeBrokerRequest(), pb.BrokerDescription)
        return BrokerDescription(found.version, found.cluster_id, dict(found.listeners), found.topics)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def __repr__(self) -> str:
        return client_repr(
            "AsyncAdmin", is_closed=self._connections.is_closed, address=self._connections.address
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call(self, name: str, request: Proto, response: type[ProtoResponse]) -> ProtoResponse:
        return await self._connections.call(ADMIN, name, request, response)

    async def _call_at_most_once(
        self, name: str, request: Proto, response: type[ProtoResponse]
    ) -> ProtoResponse:
        """For requests that must not take effect twice."""
        return await self._connections.call_at_most_once(ADMIN, name, request, response)


def _partitions(partitions: int | None) -> int:
    """0 lets the broker choose."""
    return 0 if partitions is None else check_partition_count(arguments.number("partitions", partitions))


def _topic(topic: pb.Topic) -> Topic:
    return Topic(topic.name, topic.id, topic.partitions, topic.created_at_ms, dict(topic.configs))


def _group(group: pb.Group) -> Group:
    return Group(group.name, group.state, group.protocol_type, group.type)


def _member(member: pb.Member) -> Member:
    assigned = {each.topic: list(each.partitions) for each in member.assigned}
    return Member(member.id, member.client_id, member.client_host, assigned)
