"""Share groups that clients fill with members, subscriptions, names and offsets that make no sense: the broker
responds, and keeps nothing of what it refuses."""

from tests.hostile.kafka.test_absurd_values import TEXTS
from tests.hostile.kafka.test_groups import loaded_groups

from millpond.protocol import ErrorCode
from millpond.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)

HEARTBEAT, DESCRIBE, OFFSETS, ALTER, DELETE = 1, 1, 1, 0, 0
GROUPS = 200
MEMBERS_MAX = 200
NAMES_MAX = 10_000
PARTITIONS = 50_000
NUMBERS = (0, 1, -1, 2**31 - 1, -(2**31))
OFFSET_VALUES = (0, -1, 2**63 - 1, -(2**63))


def join(group="group", member="member", **values):
    values = {"member_epoch": 0, "subscribed_topic_names": ["target"], **values}
    return ShareGroupHeartbeatRequest(group_id=group, member_id=member, **values)


def code(wire, request):
    return ErrorCode(wire.ask(request, HEARTBEAT).error_code)


def altered(group, topic, pairs):
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=number, start_offset=offset)
        for number, offset in pairs
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
    return AlterShareGroupOffsetsRequest(group_id=group, topics=topics)


def offsets(group, topic, numbers):
    topics = [DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(numbers))]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
    return DescribeShareGroupOffsetsRequest(groups=[asked])


def test_refused_joins_of_share_groups_leave_nothing_behind(attacked_broker):
    with attacked_broker("share groups with random names") as siege, siege.attacker() as wire:
        for number in range(GROUPS):
            assert code(wire, join(f"group-{number}", member="")) is ErrorCode.INVALID_REQUEST
            assert code(wire, join(f"group-{number}", member_epoch=5)) is ErrorCode.UNKNOWN_MEMBER_ID
        assert loaded_groups(siege) == 0


def test_names_of_any_characters_are_kept_apart_or_refused(attacked_broker):
    with attacked_broker("odd names of share groups") as siege, siege.attacker() as wire:
        siege.create_topic("target", 2)
        texts = sorted({text for text in TEXTS if text})
        for text in texts:
            for values in ({"group": text}, {"member": text}, {"rack_id": text}):
                code(wire, join(**values))
            code(wire, join(subscribed_topic_names=[text]))
            for request, version in (
                (offsets(text, text, [0]), OFFSETS),
                (altered(text, text, [(0, 0)]), ALTER),
                (
                    DeleteShareGroupOffsetsRequest(
                        group_id=text, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=text)]
                    ),
                    DELETE,
                ),
            ):
                wire.ask(request, version)
        described = wire.ask(ShareGroupDescribeRequest(group_ids=texts), DESCRIBE).groups
        assert [each.group_id for each in described] == texts
        assert not siege.records.alarming()


def test_a_full_share_group_with_large_subscriptions_responds(attacked_broker):
    names = [f"n{number}" for number in range(NAMES_MAX - 1)]
    with attacked_broker("large share group") as siege, siege.attacker() as wire:
        siege.create_topic("target", 100)
        for number in range(4):
            assert (
                code(wire, join(member=f"l{number}", subscribed_topic_names=["target", *names]))
                is ErrorCode.NONE
            )
        for number in range(MEMBERS_MAX - 4):
            assert code(wire, join(member=f"m{number}")) is ErrorCode.NONE
        assert code(wire, join(member="one more")) is ErrorCode.GROUP_MAX_SIZE_REACHED
        too_many = join(member="l0", subscribed_topic_names=["target", "another", *names])
        assert code(wire, too_many) is ErrorCode.INVALID_REQUEST
        [group] = wire.ask(ShareGroupDescribeRequest(group_ids=["group"]), DESCRIBE).groups
        assert len(group.members) == MEMBERS_MAX


def test_offsets_and_partitions_of_any_value_are_moved_or_refused(attacked_broker):
    with attacked_broker("absurd offsets") as siege, siege.attacker() as wire:
        siege.create_topic("target", 2)
        for offset in OFFSET_VALUES:
            done = wire.ask(altered("group", "target", [(number, offset) for number in NUMBERS]), ALTER)
            [topic] = done.responses
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert [each.error_code for each in topic.partitions] == [0, 0, unknown, unknown, unknown]
        [group] = wire.ask(offsets("group", "target", NUMBERS), OFFSETS).groups
        assert [each.start_offset for each in group.topics[0].partitions] == [0, 0, -1, -1, -1]


def test_very_many_partitions_are_named(attacked_broker):
    with attacked_broker("many partitions") as siege, siege.attacker() as wire:
        siege.create_topic("target", 2)
        numbers = range(PARTITIONS)
        done = wire.ask(altered("group", "target", [(number, 0) for number in numbers]), ALTER)
        assert len(done.responses[0].partitions) == PARTITIONS
        [group] = wire.ask(offsets("group", "target", numbers), OFFSETS).groups
        assert len(group.topics[0].partitions) == PARTITIONS
