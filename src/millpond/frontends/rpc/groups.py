"""Translates groups, and the heartbeats of their members, from and to the messages of `Admin`."""

from collections.abc import Iterable

from millpond.frontends.rpc.convert import topic_id_of, uuid_text
from millpond.groups import ConsumerHeartbeat, ConsumerHeartbeatResponse, GroupListing
from millpond.model.errors import InvalidRequest
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.service import GroupDetails
from millpond.stubs import admin_pb2 as pb

UNCHANGED = -1
"""The rebalance timeout of a heartbeat that does not set it."""


def heartbeat_of(request: pb.GroupHeartbeatRequest, client_host: str) -> ConsumerHeartbeat:
    if not request.member_id:
        raise InvalidRequest(reason="the member id is empty")
    has_timeout = request.HasField("rebalance_timeout_ms")
    return ConsumerHeartbeat(
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client_id=request.client_id,
        client_host=f"/{client_host}",  # the form in which Kafka's tools show it
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else UNCHANGED,
        topic_names=tuple(request.topics) or None,
        owned=frozenset(_owned(request.owned.topics)) if request.HasField("owned") else None,
    )


def _owned(topics: Iterable[pb.TopicPartitions]) -> Iterable[TopicPartition]:
    for each in topics:
        topic_id = topic_id_of(each.topic_id)
        if topic_id is None:
            raise InvalidRequest(reason="a member names what it owns by the ids of topics")
        yield from (TopicPartition(topic_id, number) for number in each.partitions)


def heartbeat_response(
    response: ConsumerHeartbeatResponse, assigned: Iterable[tuple[Topic, list[int]]] | None
) -> pb.GroupHeartbeatResponse:
    """`assigned` is the assignment of the response by topic; None if it has none."""
    return pb.GroupHeartbeatResponse(
        member_id=response.member_id,
        member_epoch=response.member_epoch,
        heartbeat_interval_ms=response.heartbeat_interval_ms,
        assignment=None if assigned is None else _assignment(assigned),
    )


def _assignment(assigned: Iterable[tuple[Topic, list[int]]]) -> pb.Assignment:
    topics = [
        pb.TopicPartitions(topic_id=uuid_text(topic.id), topic=topic.name, partitions=numbers)
        for topic, numbers in assigned
    ]
    return pb.Assignment(topics=topics)


def group_listing(each: GroupListing) -> pb.Group:
    return pb.Group(name=each.group_id, state=each.state, protocol_type=each.protocol_type, type=each.type)


def group_description(found: GroupDetails) -> pb.GroupDescription:
    group = found.group
    return pb.GroupDescription(
        group=pb.Group(
            name=group.group_id, state=group.state, protocol_type=group.protocol_type, type=found.type
        ),
        epoch=found.epoch,
        members=[
            pb.Member(
                id=each.member_id,
                client_id=each.client_id,
                client_host=each.client_host,
                assigned=[
                    pb.TopicPartitions(topic=topic, partitions=numbers)
                    for topic, numbers in found.assigned.get(each.member_id, {}).items()
                ],
            )
            for each in group.members
        ],
        positions=[
            pb.GroupPosition(
                topic=each.topic,
                partition=each.partition,
                read_from=None if each.offset is None else each.offset + 1,
                next=each.end_offset + 1,
                lag=each.lag,
                uncommitted=each.offset is None,
            )
            for each in found.partitions
        ],
        lag=found.lag,
        lag_unknown=found.lag is None,
    )
