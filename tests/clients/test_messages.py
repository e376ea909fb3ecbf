"""What is produced comes back as it was, whoever produced it, compressed it, and reads it."""

import itertools
import time
from contextlib import ExitStack
from functools import cache

import pytest
from tests.clients.adapters.base import Refused
from tests.clients.conftest import CLIENTS, Setting

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = (0, 1, -1)
COMBINATIONS = tuple(itertools.product(CODECS, ACKS))
START_MS = int(time.time() - 3600) * 1000
"""Not long ago: what is older than the retention goes."""
MESSAGE_TOO_LARGE = 10
MAX_MESSAGE_BYTES = 1_048_588
OVERHEAD = 72
"""Of a batch with one record of about a mebibyte, without key and headers: 61 bytes, and 11 of the record."""


def message(number):
    """Key, value, headers, timestamp: with nulls and empty ones among them."""
    key = None if number % 3 == 0 else b"key-%d" % number
    value = None if number % 3 == 1 else b"value-%d " % number * number
    headers = [(f"h{each}", b"x" * each) for each in range(number % 4)]
    return key, value, tuple(headers), START_MS + number * 1000


EXPECTED = [message(number) for number in range(20)]


@pytest.fixture(scope="module")
def written(server):
    """`written(client)` is a topic with one partition for each combination, filled by that client once."""
    with ExitStack() as stack:

        @cache
        def write(client):
            setting = Setting(server, client, stack)
            topic = setting.topic(len(COMBINATIONS))
            for partition, (codec, acks) in enumerate(COMBINATIONS):
                producer = client.producer(server.address, codec=codec, acks=acks)
                for key, value, headers, timestamp in EXPECTED:
                    producer.send(
                        topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition
                    )
                offsets = producer.flush()
                assert acks == 0 or offsets == list(range(len(EXPECTED)))
                producer.close()
            return topic

        yield write


@pytest.mark.parametrize("producing", CLIENTS, ids=lambda client: f"by {client.name}")
def test_every_codec_and_every_acks_by_everyone_is_read_by_everyone(setting, written, producing):
    topic = written(producing)
    found = {partition: [] for partition in range(len(COMBINATIONS))}
    for each in setting.read(topic, len(COMBINATIONS) * len(EXPECTED), len(COMBINATIONS)):
        found[each.partition].append(each)
    for partition, combination in enumerate(COMBINATIONS):
        got = [(each.key, each.value, each.headers, each.timestamp) for each in found[partition]]
        assert got == EXPECTED, combination
        assert [each.offset for each in found[partition]] == list(range(len(EXPECTED)))


def test_a_time_leads_to_an_offset_and_from_there_on(setting):
    topic = setting.topic()
    producer = setting.producer()
    for number in range(10):
        producer.send(topic, b"%d" % number, timestamp=START_MS + number * 1000)
    producer.flush()
    reader = setting.reader(topic)
    assert len(setting.take(reader, 10)) == 10
    assert reader.offset_at((topic, 0), START_MS) == 0
    assert reader.offset_at((topic, 0), START_MS + 4001) == 5
    assert reader.offset_at((topic, 0), START_MS + 10_000) is None
    reader.seek((topic, 0), 5)
    assert [each.value for each in setting.take(reader, 5)] == [b"5", b"6", b"7", b"8", b"9"]


def test_an_idempotent_producer_is_answered_in_order(setting):
    topic = setting.topic()
    producer = setting.producer(idempotent=True)
    for number in range(1000):
        producer.send(topic, b"%d" % number)
    assert producer.flush() == list(range(1000))
    assert [int(each.value) for each in setting.read(topic, 1000)] == list(range(1000))


def test_the_largest_message_is_taken_and_one_byte_more_refused(setting):
    topic = setting.topic()
    producer = setting.producer()
    largest = bytes(MAX_MESSAGE_BYTES - OVERHEAD)
    producer.send(topic, largest)
    assert producer.flush() == [0]
    producer.send(topic, largest + b"x")
    with pytest.raises(Refused) as refused:
        producer.flush()
    assert refused.value.code == MESSAGE_TOO_LARGE
    producer.send(topic, b"after")
    assert producer.flush() == [1]
    assert [each.value for each in setting.read(topic, 2)] == [largest, b"after"]


def test_many_messages_of_a_megabyte(setting):
    topic = setting.topic()
    producer = setting.producer()
    values = [bytes([number]) * 1_000_000 for number in range(20)]
    for value in values:
        producer.send(topic, value)
    assert producer.flush() == list(range(20))
    assert [each.value for each in setting.read(topic, 20)] == values
