"""Members of consumer groups, driven side by side."""

import itertools
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.clients.patience import JOIN_SECONDS, SECONDS_MAX

PARTITIONS = 4


@pytest.fixture
def topic(setting):
    return setting.topic(PARTITIONS)


@pytest.fixture
def group():
    return f"g-{uuid.uuid4().hex[:12]}"


def numbers(member):
    return {number for _, number in member.assignment()}


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
