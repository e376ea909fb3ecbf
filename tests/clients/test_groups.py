"""Consumer groups: members come, go, die and return, and every message is read by one of them."""

import itertools
import json
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.clients.conftest import CLIENTS, Setting
from tests.clients.patience import JOIN_SECONDS, SECONDS_MAX

ROOT = Path(__file__).parents[2]
PARTITIONS = 4


@pytest.fixture
def topic(setting):
    return setting.topic(PARTITIONS)


@pytest.fixture
def group():
    return f"g-{uuid.uuid4().hex[:12]}"


def numbers(member):
    return {number for _, number in member.assignment()}


class Victim:
    """A member that can be killed."""

    def __init__(self, setting, group, topic, instance_id=None):
        command = [sys.executable, "-m", "tests.clients.member", setting.client.name, setting.address]
        command += [group, topic] + ([instance_id] if instance_id is not None else [])
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.told: list[list[int]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self):
        for line in self._process.stdout:
            self.told.append(json.loads(line))

    def numbers(self):
        return set(self.told[-1]) if self.told else set()

    def kill(self):
        self._process.kill()
        self._process.wait()
        self._reading.join()
        self._process.stdout.close()


@contextmanager
def victim(setting, group, topic, instance_id=None):
    member = Victim(setting, group, topic, instance_id)
    try:
        yield member
    finally:
        member.kill()


def together(function, members):
    """Each member in a thread of its own: to join means to wait for the others."""
    with ThreadPoolExecutor(len(members)) as threads:
        return list(threads.map(function, members))


def until(condition, *members):
    """Let the members go on until it is so."""
    give_up = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up, [sorted(member.assignment()) for member in members]
        together(lambda member: member.poll(JOIN_SECONDS), members)


def fill(setting, topic, start, count):
    producer = setting.producer()
    for number in range(start, start + count):
        producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    producer.flush()


def drain(count, *members):
    """Read so many messages, committing as they come."""

    def read(member):
        if got := member.poll(JOIN_SECONDS):
            member.commit()
        return got

    found = []
    give_up = time.monotonic() + SECONDS_MAX
    while len(found) < count and time.monotonic() < give_up:
        found += itertools.chain.from_iterable(together(read, members))
    return sorted(int(each.value) for each in found)


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


def test_a_group_goes_on_where_it_had_committed(setting, topic, group):
    fill(setting, topic, 0, 40)
    first = setting.consumer(topics=[topic], group=group)
    drain(40, first)
    assert {first.committed((topic, number)) for number in range(PARTITIONS)} == {10}
    first.close()
    fill(setting, topic, 40, 40)
    assert drain(40, setting.consumer(topics=[topic], group=group)) == list(range(40, 80))


@pytest.fixture(scope="module")
def bereaved(server):
    """A member for each client, whose fellow member has just died: all at once, since it takes a session
    timeout until anybody notices."""
    with ExitStack() as stack:
        settings = [Setting(server, client, stack) for client in CLIENTS]
        found = together(_share_with_one_that_dies, settings)
        yield dict(zip((client.name for client in CLIENTS), found, strict=True))


def _share_with_one_that_dies(setting):
    topic, group = setting.topic(PARTITIONS), f"g-{uuid.uuid4().hex[:12]}"
    with victim(setting, group, topic) as dying:
        staying = setting.consumer(topics=[topic], group=group)
        until(lambda: len(numbers(staying)) == len(dying.numbers()) == 2, staying)
    return staying


def test_a_member_that_dies_is_replaced_by_the_others(client, bereaved):
    staying = bereaved[client.name]
    until(lambda: numbers(staying) == set(range(PARTITIONS)), staying)


def test_a_static_member_that_returns_in_time_disturbs_nobody(setting, topic, group):
    staying = setting.consumer(topics=[topic], group=group, instance_id="staying")
    until(lambda: len(numbers(staying)) == PARTITIONS, staying)
    with victim(setting, group, topic, "returning") as member:
        until(lambda: len(numbers(staying)) == len(member.numbers()) == 2, staying)
        had = member.numbers()
    rebalances = staying.rebalances
    with victim(setting, group, topic, "returning") as member:
        until(lambda: member.numbers() == had, staying)
        until(lambda: len(numbers(staying)) == 2, staying)
    assert staying.rebalances == rebalances
