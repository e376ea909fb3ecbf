"""A long backlog, written once and read by each library from its start."""

from contextlib import ExitStack

import pytest
from tests.clients.adapters.confluent import Confluent
from tests.clients.conftest import Setting

MESSAGES = 200_000
PARTITIONS = 4


@pytest.fixture(scope="module")
def backlog(server):
    with ExitStack() as stack:
        writer = Setting(server, Confluent(), stack)
        topic = writer.topic(PARTITIONS)
        producer = writer.producer(codec="lz4")
        for number in range(MESSAGES):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.flush()
        yield topic


def test_it_is_read_whole_and_in_order(setting, backlog):
    places = {number: [] for number in range(PARTITIONS)}
    for each in setting.read(backlog, MESSAGES, PARTITIONS):
        places[each.partition].append(int(each.value))
    for number, values in places.items():
        assert values == list(range(number, MESSAGES, PARTITIONS))
