"""Groups that clients fill with members, subscriptions, expressions and names that make no sense: the broker responds,
and keeps nothing of what it refuses."""

from tests.hostile.kafka.test_absurd_values import TEXTS

from millpond.protocol import ErrorCode
from millpond.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)

HEARTBEAT, DESCRIBE = 1, 1
GROUPS = 200
MEMBERS = 200
LARGE = 8
"""Members that subscribe to as many topics as they may; the codec could not read the description of many more."""
NAMES_MAX = 10_000
PARTITIONS = 99_000
"""As many as the codec lets a request name."""


def join(group="group", member="member", **values):
    values = {"subscribed_topic_names": ["target"], "rebalance_timeout_ms": 60_000, **values}
    values = {"member_epoch": 0, "topic_partitions": [], **values}
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, **values)


def code(wire, request):
    return ErrorCode(wire.ask(request, HEARTBEAT).error_code)


def loaded_groups(siege):
    groups = siege.server.services.groups
    return siege.call(lambda: len(list(groups._loaded_groups)))


def test_refused_joins_leave_nothing_behind(attacked_broker):
    with attacked_broker("groups with random names") as siege, siege.attacker() as wire:
        for number in range(GROUPS):
            assert code(wire, join(f"group-{number}", rebalance_timeout_ms=-1)) is ErrorCode.INVALID_REQUEST
        assert loaded_groups(siege) == 0


def test_ids_of_any_characters_are_kept_apart_or_refused(attacked_broker):
    with attacked_broker("odd ids") as siege, siege.attacker() as wire:
        siege.create_topic("target", 2)
        texts = sorted({text for text in TEXTS if text})
        for text in texts:
            for values in ({"group": text}, {"member": text}, {"instance_id": text}, {"rack_id": text}):
                code(wire, join(**values))
            code(wire, join(subscribed_topic_names=[text]))
            code(wire, join(subscribed_topic_regex=text))
        described = wire.ask(ConsumerGroupDescribeRequest(group_ids=texts), DESCRIBE).groups
        assert [each.group_id for each in described] == texts
        assert not siege.records.alarming()


def test_a_group_of_many_members_with_large_subscriptions_responds(attacked_broker):
    names = [f"n{number}" for number in range(NAMES_MAX)]
    with attacked_broker("large subscriptions") as siege, siege.attacker() as wire:
        siege.create_topic("target", 100)
        for number in range(LARGE):
            assert code(wire, join(member=f"m{number}", subscribed_topic_names=names)) is ErrorCode.NONE
        for number in range(MEMBERS):
            assert code(wire, join(member=f"n{number}")) is ErrorCode.NONE
        too_many = join(member="m", subscribed_topic_names=[*names, "another"])
        assert code(wire, too_many) is ErrorCode.INVALID_REQUEST
        [group] = wire.ask(ConsumerGroupDescribeRequest(group_ids=["group"]), DESCRIBE).groups
        assert len(group.members) == LARGE + MEMBERS


def test_as_many_expressions_as_a_group_may_have_are_resolved(attacked_broker):
    with attacked_broker("expressions") as siege, siege.attacker() as wire:
        siege.create_topic("target")
        costly = "(((.*)*)*)*(a|aa)+" * 20
        for number in range(100):
            regex = f"{costly}{number}"
            assert code(wire, join(member=f"m{number}", subscribed_topic_regex=regex)) is ErrorCode.NONE
        one_more = join(member="m", subscribed_topic_regex="one.more")
        assert code(wire, one_more) is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_members_may_own_whatever_they_say(attacked_broker):
    with attacked_broker("owned partitions") as siege, siege.attacker() as wire:
        siege.create_topic("target", 10)
        wire.ask(join(), HEARTBEAT)
        numbers = range(-PARTITIONS // 2, PARTITIONS // 2)
        owned = HeartbeatTopicPartitions(topic_id=b"\xff" * 16, partitions=list(numbers))
        assert code(wire, join(member_epoch=1, topic_partitions=[owned])) is ErrorCode.NONE


def test_many_unknown_groups_are_described(attacked_broker):
    with attacked_broker("unknown groups") as siege, siege.attacker() as wire:
        names = [f"group-{number}" for number in range(1_000)]
        described = wire.ask(ConsumerGroupDescribeRequest(group_ids=names), DESCRIBE).groups
        assert {each.error_code for each in described} == {ErrorCode.GROUP_ID_NOT_FOUND}
        assert loaded_groups(siege) == 0
