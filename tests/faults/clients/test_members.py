"""Members of consumer groups that are killed: the others take over; a static member that returns keeps its share."""

import json
import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.clients.conftest import GROUP_CLIENTS, Setting
from tests.clients.members import PARTITIONS, numbers, together, until

ROOT = Path(__file__).parents[3]


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


@pytest.fixture(scope="module")
def bereaved(server):
    """A member for each client, whose fellow member has just died: all at once, since it takes a session
    timeout until anybody notices."""
    with ExitStack() as stack:
        settings = [Setting(server, client, stack) for client in GROUP_CLIENTS]
        found = together(_share_with_one_that_dies, settings)
        yield dict(zip((client.name for client in GROUP_CLIENTS), found, strict=True))


def _share_with_one_that_dies(setting):
    topic, group = setting.topic(PARTITIONS), f"g-{uuid.uuid4().hex[:12]}"
    with victim(setting, group, topic) as dying:
        staying = setting.consumer(topics=[topic], group=group)
        until(lambda: len(numbers(staying)) == len(dying.numbers()) == 2, staying)
    return staying


@pytest.mark.parametrize("client", GROUP_CLIENTS, ids=lambda client: client.name)
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
