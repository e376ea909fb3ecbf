"""Transactions: all or nothing, for messages and for the offsets that were consumed to make them."""

import uuid

import pytest
from tests.clients.adapters.base import Refused

COUNT = 10


@pytest.fixture
def transactional_id():
    return f"x-{uuid.uuid4().hex[:12]}"


def send(producer, topic, start):
    for number in range(start, start + COUNT):
        producer.send(topic, b"%d" % number)


def values(messages):
    return [int(each.value) for each in messages]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(setting, transactional_id):
    topic = setting.topic()
    producer = setting.producer(transactional_id=transactional_id)
    for start, ending in ((0, producer.commit), (10, producer.abort), (20, producer.commit)):
        producer.begin()
        send(producer, topic, start)
        producer.flush()
        ending()
    committed = [*range(10), *range(20, 30)]
    assert values(setting.read(topic, 20, read_committed=True)) == committed
    assert values(setting.read(topic, 30)) == list(range(30))


def test_what_is_not_decided_yet_is_not_read(setting, transactional_id):
    topic = setting.topic()
    producer = setting.producer(transactional_id=transactional_id)
    producer.begin()
    send(producer, topic, 0)
    producer.flush()
    reader = setting.reader(topic, read_committed=True)
    assert [each for _ in range(5) for each in reader.poll(0.1)] == []
    assert values(setting.read(topic, COUNT)) == list(range(COUNT))
    producer.commit()
    assert values(setting.take(reader, COUNT)) == list(range(COUNT))


def test_offsets_are_committed_with_what_was_made_of_them(setting, transactional_id):
    source, target, group = setting.topic(), setting.topic(), f"g-{uuid.uuid4().hex[:12]}"
    plain = setting.producer()
    send(plain, source, 0)
    plain.flush()
    consumer = setting.consumer(topics=[source], group=group)
    producer = setting.producer(transactional_id=transactional_id)

    taken = setting.take(consumer, COUNT)
    producer.begin()
    for each in taken:
        producer.send(target, b"%d" % (int(each.value) * 2))
    producer.send_offsets({(source, 0): taken[-1].offset + 1}, consumer)
    producer.abort()
    assert consumer.committed((source, 0)) is None

    producer.begin()
    for each in taken:
        producer.send(target, b"%d" % (int(each.value) * 3))
    producer.send_offsets({(source, 0): taken[-1].offset + 1}, consumer)
    producer.commit()
    assert consumer.committed((source, 0)) == COUNT
    made = setting.read(target, COUNT, read_committed=True)
    assert values(made) == [number * 3 for number in range(COUNT)]

    consumer.close()
    send(plain, source, COUNT)
    plain.flush()
    following = setting.consumer(topics=[source], group=group)
    assert values(setting.take(following, COUNT)) == list(range(COUNT, 2 * COUNT))


def test_a_second_producer_of_the_same_id_fences_the_first(setting, transactional_id):
    topic = setting.topic()
    first = setting.producer(transactional_id=transactional_id)
    first.begin()
    send(first, topic, 0)
    first.flush()
    second = setting.producer(transactional_id=transactional_id)
    second.begin()
    send(second, topic, 10)
    with pytest.raises(Refused):
        first.commit()
    second.commit()
    assert values(setting.read(topic, COUNT, read_committed=True)) == list(range(10, 20))
