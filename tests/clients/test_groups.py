"""Consumer groups: members come and go, and every message is read by one of them."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from tests.clients.conftest import GROUP_CLIENTS, Setting
from tests.clients.members import PARTITIONS, drain, fill, numbers, until
from tests.clients.patience import SECONDS_MAX

from millpond.groups import GroupLimits
from millpond.model.errors import UnknownGroup
from millpond.testing import SimulatedClock, running_broker
from millpond.testing.background import run_in_background

in_each_protocol = pytest.mark.parametrize("client", GROUP_CLIENTS, ids=lambda client: client.name)


@in_each_protocol
def test_members_share_the_partitions_and_read_each_message_once(setting, topic, group):
    everything = set(range(PARTITIONS))
    fill(setting, topic, 0, 40)
    first = setting.consumer(topics=[topic], group=group)
    assert drain(40, first) == list(range(40))
    assert numbers(first) == everything

    second = setting.consumer(topics=[topic], group=group)
    until(lambda: len(numbers(first)) == len(numbers(second)) == 2, first, second)
    assert numbers(first) | numbers(second) == everything
    fill(setting, topic, 40, 40)
    assert drain(40, first, second) == list(range(40, 80))

    second.close()
    until(lambda: numbers(first) == everything, first)
    fill(setting, topic, 80, 40)
    assert drain(40, first) == list(range(80, 120))


@in_each_protocol
def test_a_group_goes_on_where_it_had_committed(setting, topic, group):
    fill(setting, topic, 0, 40)
    first = setting.consumer(topics=[topic], group=group)
    drain(40, first)
    assert {first.committed((topic, number)) for number in range(PARTITIONS)} == {10}
    first.close()
    fill(setting, topic, 40, 40)
    assert drain(40, setting.consumer(topics=[topic], group=group)) == list(range(40, 80))


# -- the first generation ----------------------------------------------------------------------------------------


@pytest.fixture
def waiting_broker():
    """A broker with the default delay, whose time stands still."""
    clock = SimulatedClock()
    delay_ms = GroupLimits().initial_rebalance_delay_ms
    context = running_broker(kafka=True, clock=clock, group_initial_rebalance_delay=delay_ms)
    broker = run_in_background(context.__aenter__())
    yield broker, clock, delay_ms
    run_in_background(context.__aexit__(None, None, None))


def test_a_new_group_reads_its_first_message_after_the_default_delay(client, waiting_broker, group):
    broker, clock, delay_ms = waiting_broker
    assert delay_ms <= 100, "what a person does not notice"
    run_in_background(broker.produce("t", b"0"))
    with ExitStack() as stack:
        setting = Setting(SimpleNamespace(address=broker.listeners["kafka"]), client, stack)
        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(lambda: setting.take(setting.consumer(topics=["t"], group=group), 1))
            until_described(broker, group, "PreparingRebalance", found)
            clock.advance(delay_ms)
            assert [each.value for each in found.result()] == [b"0"]


def until_described(broker, group, state, polling):
    give_up = time.monotonic() + SECONDS_MAX
    while state_of(broker, group) != state:
        assert not polling.done(), polling
        assert time.monotonic() < give_up
        time.sleep(0.01)


def state_of(broker, group):
    try:
        return run_in_background(broker.groups.describe(group)).state
    except UnknownGroup:
        return None
