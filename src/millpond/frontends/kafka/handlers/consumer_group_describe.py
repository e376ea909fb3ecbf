"""ConsumerGroupDescribe (69), v0-1: describes groups of the consumer protocol; members have a current and a target
assignment.

A group of the classic protocol, and a share group, get GROUP_ID_NOT_FOUND, after which tools ask with DescribeGroups.
From v1 members have a type: those of the classic protocol are in the group while its clients are being upgraded. A
group that uses topics which the client may not describe gets TOPIC_AUTHORIZATION_FAILED.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of, description_refusal
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from millpond.groups import ConsumerGroupDescription, MemberDescription
from millpond.model.acls import ResourceType
from millpond.model.errors import MillpondError, UnknownGroup
from millpond.model.ids import TopicId, TopicPartition
from millpond.protocol import ErrorCode
from millpond.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignedTopic,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedConsumerMember,
)

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


@handles(ConsumerGroupDescribeRequest, rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def consumer_group_describe(
    call: KafkaCall, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    described = [await _one(call, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = call.operations(ResourceType.GROUP, group.group_id)
    return ConsumerGroupDescribeResponse(groups=described)


async def _one(call: KafkaCall, group_id: str) -> DescribedConsumerGroup:
    try:
        call.require(DESCRIBE_GROUP, group_id)
        found = await call.groups.describe(group_id)
        if not isinstance(found, ConsumerGroupDescription):
            message = f"Group {group_id!r} does not use the consumer protocol."
            raise UnknownGroup(message, group=group_id)
        return _described(call, found)
    except MillpondError as error:
        return _refused(group_id, coordinator_code_of(error), description_refusal(error))


def _refused(group_id: str, code: ErrorCode, message: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _described(call: KafkaCall, group: ConsumerGroupDescription) -> DescribedConsumerGroup:
    members = [_member(call, each) for each in group.members]
    for name in sorted({name for member in members for name in _topics(member)}):
        call.require(DESCRIBE_TOPIC, name)
    return DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=members,
    )


def _topics(member: DescribedConsumerMember) -> Iterable[str]:
    yield from member.subscribed_topic_names
    for assignment in (member.assignment, member.target_assignment):
        for topic in assignment.topic_partitions:
            yield topic.topic_name


def _member(call: KafkaCall, member: MemberDescription) -> DescribedConsumerMember:
    return DescribedConsumerMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(call, member.assigned),
        target_assignment=_assignment(call, member.target),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(call: KafkaCall, partitions: Iterable[TopicPartition]) -> DescribedAssignment:
    by_topic: defaultdict[TopicId, list[int]] = defaultdict(list)
    for topic_id, number in partitions:
        by_topic[topic_id].append(number)
    topics = call.log.topics
    return DescribedAssignment(
        topic_partitions=[
            DescribedAssignedTopic(
                topic_id=topic_id, topic_name=topics.with_id(topic_id).name, partitions=numbers
            )
            for topic_id, numbers in by_topic.items()
        ]
    )
