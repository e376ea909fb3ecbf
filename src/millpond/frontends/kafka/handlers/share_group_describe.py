"""ShareGroupDescribe (77), v1: describes share groups, their members, and what each of them reads.

A group of another type gets GROUP_ID_NOT_FOUND. A group that uses topics which the client may not describe gets
TOPIC_AUTHORIZATION_FAILED.
"""

from collections import defaultdict
from collections.abc import Iterable

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of, description_refusal
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from millpond.groups import ShareGroupDescription, ShareMemberDescription
from millpond.model.acls import ResourceType
from millpond.model.errors import MillpondError, UnknownGroup
from millpond.model.ids import TopicId, TopicPartition
from millpond.protocol import ErrorCode
from millpond.protocol.messages.share_groups import (
    DescribedShareAssignment,
    DescribedShareGroup,
    DescribedShareMember,
    DescribedShareTopic,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@handles(ShareGroupDescribeRequest, rights=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def share_group_describe(
    call: KafkaCall, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    described = [await _one(call, group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        for group in described:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = call.operations(ResourceType.GROUP, group.group_id)
    return ShareGroupDescribeResponse(groups=described)


async def _one(call: KafkaCall, group_id: str) -> DescribedShareGroup:
    try:
        call.require(DESCRIBE_GROUP, group_id)
        found = await call.groups.describe(group_id)
        if not isinstance(found, ShareGroupDescription):
            raise UnknownGroup(f"Group {group_id!r} is not a share group.", group=group_id)
        return _described(call, found)
    except MillpondError as error:
        return _refused(group_id, coordinator_code_of(error), description_refusal(error))


def _refused(group_id: str, code: ErrorCode, message: str) -> DescribedShareGroup:
    return DescribedShareGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _described(call: KafkaCall, group: ShareGroupDescription) -> DescribedShareGroup:
    members = [_member(call, each) for each in group.members]
    for name in sorted({name for member in members for name in _topics(member)}):
        call.require(DESCRIBE_TOPIC, name)
    return DescribedShareGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.protocol,
        members=members,
    )


def _topics(member: DescribedShareMember) -> Iterable[str]:
    yield from member.subscribed_topic_names
    for topic in member.assignment.topic_partitions:
        yield topic.topic_name


def _member(call: KafkaCall, member: ShareMemberDescription) -> DescribedShareMember:
    return DescribedShareMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=_assignment(call, member.assigned),
    )


def _assignment(call: KafkaCall, partitions: Iterable[TopicPartition]) -> DescribedShareAssignment:
    by_topic: defaultdict[TopicId, list[int]] = defaultdict(list)
    for topic_id, number in partitions:
        by_topic[topic_id].append(number)
    topics = call.log.topics
    return DescribedShareAssignment(
        topic_partitions=[
            DescribedShareTopic(
                topic_id=topic_id, topic_name=topics.with_id(topic_id).name, partitions=numbers
            )
            for topic_id, numbers in by_topic.items()
        ]
    )
