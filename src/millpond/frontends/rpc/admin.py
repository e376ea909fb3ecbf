"""The `Admin` service: topics, positions, groups and the broker. `admin_security.py` has its other methods."""

import uuid
from collections.abc import Mapping

from millpond.frontends.rpc.admin_security import SecurityMethods
from millpond.frontends.rpc.context import Context
from millpond.frontends.rpc.convert import NUMBER_MAX, topic_id_of
from millpond.frontends.rpc.groups import (
    group_description,
    group_listing,
    heartbeat_of,
    heartbeat_response,
)
from millpond.frontends.rpc.guarding import guarded
from millpond.frontends.rpc.rights import READ_GROUP, READ_TOPIC
from millpond.groups import CommitSender
from millpond.model.acls import AclOperation, ResourceType
from millpond.model.errors import InvalidRequest, UnknownTopic
from millpond.model.topics import Topic
from millpond.security import Access
from millpond.security.requirements import AUTHENTICATED, AnyOf, Needs, Shows
from millpond.service import (
    Administration,
    MessageWriter,
    PartitionDescription,
    SecurityAdministration,
    TopicDetails,
)
from millpond.stubs import admin_pb2 as pb

EVERYTHING = -1


class AdminService(SecurityMethods):
    def __init__(
        self,
        administration: Administration,
        messages: MessageWriter,
        security: SecurityAdministration,
        *,
        version: str,
        cluster_id: str,
        listeners: Mapping[str, str],
    ) -> None:
        super().__init__(security)
        self._administration = administration
        self._messages = messages
        self._version = version
        self._cluster_id = cluster_id
        self._listeners = listeners

    @guarded(
        AnyOf(
            Needs(AclOperation.CREATE, ResourceType.TOPIC, of="name"),
            Needs(AclOperation.CREATE, ResourceType.CLUSTER),
        )
    )
    async def create_topic(self, request: pb.CreateTopicRequest, context: Context) -> pb.Topic:
        count = request.partitions or None
        made = await self._administration.create_topic(
            request.name, count, dict(request.configs), access=context.access
        )
        return _topic(made, context.access)

    @guarded(Shows(AclOperation.DESCRIBE, ResourceType.TOPIC))
    async def list_topics(self, _: pb.ListTopicsRequest, context: Context) -> pb.ListTopicsResponse:
        found = self._administration.topics(context.access)
        return pb.ListTopicsResponse(topics=[_topic(topic, context.access) for topic in found])

    @guarded(Needs(AclOperation.DESCRIBE, ResourceType.TOPIC, of="name"))
    async def describe_topic(self, request: pb.DescribeTopicRequest, context: Context) -> pb.TopicDescription:
        if request.create:
            await self._messages.topic(request.name, context.access)
        found = await self._described(request, context.access)
        configs = Administration.visible_configs(context.access, request.name, found.configs)
        return pb.TopicDescription(
            topic=_topic(found.topic, context.access),
            partitions=[_partition(each) for each in found.partitions],
            configs=[
                pb.Config(name=name, value=each.value, source=each.source) for name, each in configs.items()
            ],
            brokers=[each["grpc"] for each in found.brokers if "grpc" in each],
        )

    async def _described(self, request: pb.DescribeTopicRequest, access: Access) -> TopicDetails:
        try:
            return await self._administration.describe_topic(request.name)
        except UnknownTopic:
            if not request.plan:
                raise
            return self._administration.describe_planned(self._messages.planned(request.name, access))

    @guarded(
        Needs(AclOperation.DESCRIBE, ResourceType.TOPIC, of="name"),
        Needs(AclOperation.ALTER, ResourceType.TOPIC, of="name", when=("partitions",)),
        Needs(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, of="name", when=("set", "reset")),
    )
    async def alter_topic(self, request: pb.AlterTopicRequest, context: Context) -> pb.Topic:
        changes: dict[str, str | None] = {**dict(request.set), **dict.fromkeys(request.reset)}
        if len(changes) < len(request.set) + len(request.reset):
            raise InvalidRequest(reason="a config is named more than once")
        count = request.partitions or None
        altered = await self._administration.alter_topic(
            request.name, count=count, changes=changes, access=context.access
        )
        return _topic(altered, context.access)

    @guarded(Needs(AclOperation.DELETE, ResourceType.TOPIC, of="name"))
    async def delete_topic(self, request: pb.DeleteTopicRequest, context: Context) -> pb.DeleteTopicResponse:
        await self._administration.delete_topic(request.name, access=context.access)
        return pb.DeleteTopicResponse()

    @guarded(Needs(AclOperation.DELETE, ResourceType.TOPIC, of="topic"))
    async def delete_messages(
        self, request: pb.DeleteMessagesRequest, context: Context
    ) -> pb.DeleteMessagesResponse:
        before = _offset(request.before) if request.HasField("before") else EVERYTHING
        oldest = await self._administration.delete_records(
            request.topic, request.partition, before, access=context.access
        )
        return pb.DeleteMessagesResponse(oldest=oldest + 1)

    @guarded(Needs(AclOperation.DESCRIBE, ResourceType.TOPIC, of="topic"))
    async def find_by_time(self, request: pb.FindByTimeRequest, _: Context) -> pb.FindByTimeResponse:
        found = await self._administration.describe_topic(request.topic)
        offsets = [
            await self._administration.offset_at(request.topic, each.partition, request.timestamp_ms)
            for each in found.partitions
        ]
        return pb.FindByTimeResponse(numbers=[offset + 1 for offset in offsets])

    @guarded(Shows(AclOperation.DESCRIBE, ResourceType.GROUP))
    async def list_groups(self, _: pb.ListGroupsRequest, context: Context) -> pb.ListGroupsResponse:
        found = await self._administration.groups(context.access)
        return pb.ListGroupsResponse(groups=[group_listing(each) for each in found])

    @guarded(Needs(AclOperation.DESCRIBE, ResourceType.GROUP, of="name"))
    async def describe_group(self, request: pb.DescribeGroupRequest, context: Context) -> pb.GroupDescription:
        return group_description(await self._administration.describe_group(request.name, context.access))

    @guarded(READ_GROUP, Needs(AclOperation.DESCRIBE, ResourceType.TOPIC, of="topics"))
    async def group_heartbeat(
        self, request: pb.GroupHeartbeatRequest, context: Context
    ) -> pb.GroupHeartbeatResponse:
        heartbeat = heartbeat_of(request, context.client_host)
        response = await self._administration.heartbeat(request.group, heartbeat, context.access)
        assigned = response.assignment
        topics = None if assigned is None else self._administration.by_topic(assigned, context.access)
        return heartbeat_response(response, topics)

    @guarded(READ_GROUP, READ_TOPIC)
    async def commit_positions(
        self, request: pb.CommitPositionsRequest, _: Context
    ) -> pb.CommitPositionsResponse:
        offsets = {partition: _offset(number) for partition, number in request.read_from.items()}
        member = CommitSender(request.member_id, request.member_epoch) if request.member_id else None
        await self._administration.commit(
            *(request.group, request.topic, offsets), member=member, topic_id=topic_id_of(request.topic_id)
        )
        return pb.CommitPositionsResponse()

    @guarded(Needs(AclOperation.DELETE, ResourceType.GROUP, of="name"))
    async def delete_group(self, request: pb.DeleteGroupRequest, _: Context) -> pb.DeleteGroupResponse:
        await self._administration.delete_group(request.name)
        return pb.DeleteGroupResponse()

    @guarded(AUTHENTICATED)
    async def describe_broker(self, _: pb.DescribeBrokerRequest, context: Context) -> pb.BrokerDescription:
        return pb.BrokerDescription(
            version=self._version,
            cluster_id=self._cluster_id,
            listeners=self._listeners,
            topics=len(self._administration.topics(context.access)),
        )


def _offset(number: int) -> int:
    if not 1 <= number <= NUMBER_MAX:
        raise InvalidRequest(reason=f"{number} is no message number: they begin at 1")
    return number - 1


def _topic(topic: Topic, access: Access) -> pb.Topic:
    return pb.Topic(
        name=topic.name,
        id=str(uuid.UUID(bytes=topic.id)) if topic.id else "",
        partitions=topic.partitions,
        created_at_ms=topic.created_at,
        configs=Administration.visible_configs(access, topic.name, topic.overrides),
    )


def _partition(each: PartitionDescription) -> pb.Partition:
    return pb.Partition(
        partition=each.partition,
        oldest=each.log_start + 1,
        next=each.end_offset + 1,
        size_bytes=each.size_bytes,
        owner=each.owner.get("grpc", ""),
    )
