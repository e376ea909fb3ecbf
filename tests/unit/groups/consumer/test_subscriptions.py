"""What the members of a group subscribe to together."""

from dataclasses import replace

from tests.each import for_each
from tests.unit.groups.consumer_topics import KnownTopics

from millpond.groups.consumer.members import ConsumerMember
from millpond.groups.consumer.subscriptions import GroupSubscriptions
from millpond.groups.limits import GroupLimits

TOPICS = KnownTopics({f"t{number}": 1 for number in range(100)})


def test_nothing_is_kept_of_subscriptions_that_no_member_has():
    subscriptions = GroupSubscriptions(GroupLimits())
    subscriptions.update(TOPICS, 0)
    member = None
    for number in range(100):
        former, member = member, ConsumerMember("m", "m", "here", topic_names=(f"t{number}", "t0"))
        subscriptions.replace(former, member)
        assert len(subscriptions.topics_of(member)) == len(set(member.topic_names))
    assert len(subscriptions._topic_ids) == 1


@for_each("regex", [r"(\w*\d*\S*.?){80}#", r"t.*", r".*"])
def test_a_heartbeat_does_a_limited_amount_of_work_for_an_expression(regex):
    limits = GroupLimits(regex_work_max=100_000)
    subscriptions = GroupSubscriptions(limits)
    subscriptions.replace(None, member := ConsumerMember("m", "m", "here", topic_regex=regex))
    described = []
    while regex not in subscriptions.resolved:
        before = len(described)
        subscriptions.update(TOPICS, 0, regex, lambda name: described.append(name) or True)
        assert before <= len(described) <= before + 50
    subscriptions.replace(member, replace(member, topic_regex=""))
    kept = subscriptions.resolved, subscriptions._compiled, subscriptions._matched, subscriptions._matching
    assert kept == ({}, {}, {}, {})
