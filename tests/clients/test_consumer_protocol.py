"""Members of the consumer protocol (KIP-848): what they have that classic members do not, and both in one group.

What members of both protocols do alike is in `test_groups.py`.
"""

from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from tests.clients.adapters.base import Refused
from tests.clients.adapters.named import CONSUMER_PROTOCOL, client_named
from tests.clients.conftest import CLIENTS, HEARTBEAT_MS, HEARTBEATS, Setting
from tests.clients.members import PARTITIONS, drain, fill, numbers, until

from millpond.groups.limits import GroupLimits
from millpond.testing import SimulatedClock, running_broker
from millpond.testing.background import run_in_background

EVERYTHING = set(range(PARTITIONS))
pytestmark = pytest.mark.parametrize("client", [client_named(CONSUMER_PROTOCOL)], ids=["confluent-kafka"])


# -- assignments -------------------------------------------------------------------------------------------------


def test_callbacks_name_only_the_partitions_that_move(setting, topic, group):
    first = setting.consumer(topics=[topic], group=group)
    until(lambda: numbers(first) == EVERYTHING, first)
    second = setting.consumer(topics=[topic], group=group)
    until(lambda: len(numbers(second)) == 2, first, second)
    moved = second.assignment()
    assert (first.assigned, first.revoked) == ([first.assignment() | moved], [moved])
    assert (second.assigned, second.revoked) == ([moved], [])

    second.close()
    until(lambda: numbers(first) == EVERYTHING, first)
    assert first.assigned[1:] == [moved]
    assert first.revoked == [moved]


def test_members_choose_the_range_assignor(setting, group):
    topics = [setting.topic(3), setting.topic(3)]
    members = [setting.consumer(topics=topics, group=group, assignor="range") for _ in range(2)]
    until(lambda: {len(each.assignment()) for each in members} == {2, 4}, *members)
    assert sorted(map(by_topic, members)) == [[[0, 1], [0, 1]], [[2], [2]]]


def by_topic(member):
    found = {}
    for topic, number in sorted(member.assignment()):
        found.setdefault(topic, []).append(number)
    return list(found.values())


# -- static members ----------------------------------------------------------------------------------------------


def test_a_static_member_that_returns_has_its_partitions_again_and_moves_none(setting, topic, group):
    staying = setting.consumer(topics=[topic], group=group, instance_id="staying")
    former = setting.consumer(topics=[topic], group=group, instance_id="returning")
    until(lambda: len(numbers(staying)) == len(numbers(former)) == 2, staying, former)
    had, callbacks = numbers(former), (list(staying.assigned), list(staying.revoked))
    former.close()

    returned = setting.consumer(topics=[topic], group=group, instance_id="returning")
    until(lambda: numbers(returned) == had, staying, returned)
    fill(setting, topic, 0, 40)
    assert drain(40, staying, returned) == list(range(40))
    assert (staying.assigned, staying.revoked) == callbacks


def test_a_second_process_cannot_be_a_static_member_that_is_there(setting, topic, group):
    holder = setting.consumer(topics=[topic], group=group, instance_id="taken")
    until(lambda: numbers(holder) == EVERYTHING, holder)
    second = setting.consumer(topics=[topic], group=group, instance_id="taken")
    with pytest.raises(Refused, match="instance ID is still used"):
        until(lambda: False, second)
    fill(setting, topic, 0, 40)
    assert drain(40, holder) == list(range(40))


def test_a_static_member_of_the_classic_protocol_is_replaced_by_one_of_this(setting, topic, group):
    former = classic(setting).consumer(topics=[topic], group=group, instance_id="upgraded")
    until(lambda: numbers(former) == EVERYTHING, former)
    member = setting.consumer(topics=[topic], group=group, instance_id="upgraded")
    until(lambda: numbers(member) == EVERYTHING, member)
    with pytest.raises(Refused, match="fenced"):
        until(lambda: False, former)


# -- regular expressions -----------------------------------------------------------------------------------------


@pytest.fixture
def clocked_broker():
    clock = SimulatedClock()
    context = running_broker(kafka=True, clock=clock, **dict.fromkeys(HEARTBEATS, HEARTBEAT_MS))
    broker = run_in_background(context.__aenter__())
    yield broker, clock
    run_in_background(context.__aexit__(None, None, None))


def test_a_regular_expression_matches_topics_that_exist_and_new_ones(client, clocked_broker, group):
    broker, clock = clocked_broker
    with ExitStack() as stack:
        setting = Setting(SimpleNamespace(address=broker.listeners["kafka"]), client, stack)
        admin = setting.admin()
        for topic in ("orders-1", "orders-2", "my-orders-3", "payments"):
            admin.create_topic(topic)
        member = setting.consumer(topics=["^orders-.*"], group=group)
        until(lambda: topics_of(member) == {"orders-1", "orders-2"}, member)
        admin.create_topic("orders-4")
        clock.advance(GroupLimits().regex_resolution_every_ms)
        until(lambda: topics_of(member) == {"orders-1", "orders-2", "orders-4"}, member)
        assert member.revoked == []


def topics_of(member):
    return {topic for topic, _ in member.assignment()}


# -- migration ---------------------------------------------------------------------------------------------------


def classic(setting, client=CLIENTS[0]):
    return setting.with_client(client)


@pytest.mark.parametrize("classic_client", CLIENTS, ids=lambda each: each.name)
def test_a_group_moves_to_this_protocol_and_back_member_by_member(setting, topic, group, classic_client):
    """Each message is read once, while members of both protocols share the partitions, too."""
    old = classic(setting, classic_client)
    read = Reading(setting, topic)
    first = old.consumer(topics=[topic], group=group)
    read.by(first)

    second = setting.consumer(topics=[topic], group=group)
    until(lambda: len(numbers(first)) == len(numbers(second)) == 2, first, second)
    read.by(first, second)
    first.close()
    until(lambda: numbers(second) == EVERYTHING, second)
    read.by(second)

    third = old.consumer(topics=[topic], group=group)
    until(lambda: len(numbers(second)) == len(numbers(third)) == 2, second, third)
    read.by(second, third)
    second.close()
    until(lambda: numbers(third) == EVERYTHING, third)
    read.by(third)


class Reading:
    """Writes messages, which members have to read once each."""

    def __init__(self, setting, topic):
        self._setting, self._topic, self._next = setting, topic, 0

    def by(self, *members):
        start, self._next = self._next, self._next + 20
        fill(self._setting, self._topic, start, 20)
        assert drain(20, *members) == list(range(start, start + 20))
