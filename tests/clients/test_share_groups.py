"""Share groups (KIP-932) with librdkafka's share consumer: what Kafka promises, and what Millpond adds to it.

A broker in this process has a clock to move, so that locks end when a test says so.
"""

from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer
from tests.clients.conftest import HEARTBEAT_MS
from tests.clients.share_members import EXPLICIT, IMPLICIT, LIMIT, REJECT, RELEASE, Share, until, values
from tests.clients.share_scenarios import every_scenario

from millpond import Admin, Subscriber
from millpond.model.share_groups import ShareGroupConfig, subscription_name
from millpond.testing import SimulatedClock, running_broker
from millpond.testing.background import run_in_background

HEARTBEATS = ("group_share_heartbeat_interval", "group_share_heartbeat_interval_min")
PASSED_MS = ShareGroupConfig().record_lock_ms + 1


@pytest.fixture(scope="module")
def clocked_broker():
    clock = SimulatedClock()
    settings = dict.fromkeys(HEARTBEATS, HEARTBEAT_MS)
    context = running_broker(kafka=True, grpc=True, clock=clock, **settings)
    broker = run_in_background(context.__aenter__())
    yield broker, clock
    run_in_background(context.__aexit__(None, None, None))


@pytest.fixture
def share(clocked_broker):
    broker, clock = clocked_broker
    with ExitStack() as stack:
        yield Share(broker.listeners["kafka"], stack, lambda: clock.advance(PASSED_MS))


@pytest.fixture
def admin(clocked_broker):
    with Admin(address=clocked_broker[0].listeners["grpc"]) as admin:
        yield admin


@every_scenario
def test_what_members_may_rely_on(share, scenario):
    scenario(share)


# -- what Millpond adds --------------------------------------------------------------------------------------------


def described(share, admin):
    return admin.describe_subscription(share.topic, subscription_name(share.group))


def test_a_share_group_is_described_as_a_subscription(share, admin):
    share.create()
    share.produce("held")
    member = share.member(EXPLICIT)
    held = until(member.poll, bool)
    state = described(share, admin)
    assert (state.backlog, [each.leased for each in state.partitions]) == (1, [1])
    member.settle(held)
    state = described(share, admin)
    assert (state.backlog, [each.leased for each in state.partitions]) == (0, [0])


def test_messages_delivered_too_often_and_rejected_ones_become_dead_letters(share, admin):
    share.create()
    share.configure({LIMIT: "2"})
    share.produce("poison", "bad", "good")
    member = share.member(EXPLICIT)
    fates = {b"poison": RELEASE, b"bad": REJECT}
    seen = []
    while len(seen) < 4:
        messages = until(member.poll, bool)
        seen += [(each.value, each.count) for each in messages]
        for each in messages:
            member.acknowledge([each], fates.get(each.value, 1))
        assert set(member.commit()) == {None}
    assert sorted(seen) == [(b"bad", 1), (b"good", 1), (b"poison", 1), (b"poison", 2)]
    state = described(share, admin)
    assert state.backlog == 0
    dead = share.with_topic(state.dead_letter_topic)
    dead.configure({"share.auto.offset.reset": "earliest"})
    found = until(dead.member(IMPLICIT).poll, lambda found: len(found) >= 2)
    assert sorted(values(found)) == [b"bad", b"poison"]


def test_dead_letters_are_sent_back_to_the_share_group(share, admin):
    share.create()
    share.produce("bad")
    member = share.member(EXPLICIT)
    member.settle(until(member.poll, bool), REJECT)

    def redrive():
        count = admin.redrive(share.topic, subscription_name(share.group))
        return [count] if count else []

    assert until(redrive, bool) == [1]
    again = until(member.poll, bool)
    assert values(again) == [b"bad"]
    member.settle(again)


def test_a_share_group_a_classic_group_and_a_subscription_read_the_same_topic(share, admin, clocked_broker):
    share.create()
    admin.create_subscription(share.topic, "own")
    share.produce(*range(6))
    wanted = [b"%d" % number for number in range(6)]
    member = share.member(IMPLICIT)
    assert values(until(member.poll, lambda found: len(found) >= 6)) == wanted
    classic = Consumer(
        {"bootstrap.servers": share.address, "group.id": f"c-{share.group}", "auto.offset.reset": "earliest"}
    )
    classic.subscribe([share.topic])
    assert [
        each.value() for each in until(lambda: classic.consume(6, 1), lambda found: len(found) >= 6)
    ] == wanted
    classic.close()
    with Subscriber(share.topic, "own", address=clocked_broker[0].listeners["grpc"]) as subscriber:
        for value in wanted:
            delivery = next(iter(subscriber))
            assert delivery.value == value
            delivery.ack()
    assert [each.name for each in admin.list_subscriptions(share.topic)] == sorted(
        ["own", subscription_name(share.group)]
    )


def test_with_key_order_a_message_comes_after_its_predecessor_is_accepted(share):
    share.create(partitions=2)
    share.configure({"millpond.share.key.order": "true"})
    for number in range(6):
        share.produce(number, partition=number % 2, key=b"key-%d" % (number % 2))
    members = [share.member(EXPLICIT, max_poll_records=100) for _ in range(2)]
    order = []
    held = until(lambda: [(each, one) for each in members for one in each.poll()], bool)
    while len(order) < 6:
        assert len({message.partition for _, message in held}) == len(held), "two messages of a key"
        for member, message in held:
            order.append(message)
            member.settle([message])
        if len(order) < 6:
            held = until(lambda: [(each, one) for each in members for one in each.poll()], bool)
    for partition in (0, 1):
        offsets = [each.offset for each in order if each.partition == partition]
        assert offsets == [0, 1, 2]
