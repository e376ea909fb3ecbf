"""Transactions whose coordinator, partitions and groups are on different brokers."""

import asyncio

import confluent_kafka
import pytest
from tests.shards import take_all_shards
from tests.unit.cluster.conftest import owned, two

from millpond.catalog.groups import GroupOffset
from millpond.model.errors import NotOwner, ProducerFenced


async def test_a_transaction_whose_shard_was_handed_over_is_refused(brokers):
    first = await brokers.add()
    take_all_shards(first)
    with pytest.raises(NotOwner):
        await first.transactions.begin_producer("tx", 1_000)


def named_where(prefix, coordinates):
    return next(f"{prefix}{number}" for number in range(200) if coordinates(f"{prefix}{number}"))


async def test_the_owner_of_a_partition_lets_it_join_a_transaction_that_another_coordinates(brokers):
    """Kafka's producers since KIP-890 name new partitions of a transaction only to the partitions' leaders."""
    first, second = await two(brokers, 4)
    transactional_id = named_where("tx", first.groups._store.coordinates)
    producer = await first.transactions.begin_producer(transactional_id, 60_000)
    topic_partition, other = sorted(owned(second))
    await second.transactions.ensure_partitions(producer, [topic_partition])
    assert await first.transactions.partitions_of(producer) == [topic_partition]
    assert second.log.partition(topic_partition).open_transactions.includes(*producer.identity)
    await first.transactions.begin_producer(transactional_id, 60_000)
    with pytest.raises(ProducerFenced):
        await second.transactions.ensure_partitions(producer, [other])


async def test_a_transaction_takes_offsets_of_a_group_that_another_broker_coordinates(brokers):
    """Kafka's producers send the offsets to the group's coordinator."""
    first, second = await two(brokers, 2)
    transactional_id = named_where("tx", first.groups._store.coordinates)
    group = named_where("g", second.groups._store.coordinates)
    topic_partition = next(iter(owned(second)))
    producer = await first.transactions.begin_producer(transactional_id, 60_000)
    await first.transactions.add_group(producer, group)
    await second.transactions.add_offsets(producer, group, [GroupOffset(topic_partition, 7)])
    await first.transactions.end(producer, commit=True, bump_epoch=False)
    assert (await second.groups.committed_offsets(group)).offsets[topic_partition].offset == 7
    with pytest.raises(NotOwner):
        await first.transactions.add_offsets(producer, group, [GroupOffset(topic_partition, 8)])


async def test_confluent_kafka_sends_offsets_of_a_group_that_another_broker_coordinates(brokers):
    first, second = await two(brokers, 2)
    await first.produce("t", b"x", partition=next(iter(owned(first))).partition)
    transactional_id = named_where("tx", first.groups._store.coordinates)
    group = named_where("g", second.groups._store.coordinates)

    def consume_and_commit():
        server = {"bootstrap.servers": first.listeners["kafka"]}
        consumer = confluent_kafka.Consumer({**server, "group.id": group, "enable.auto.commit": False})
        producer = confluent_kafka.Producer({**server, "transactional.id": transactional_id})
        producer.init_transactions(30)
        producer.begin_transaction()
        offsets = [confluent_kafka.TopicPartition("t", 0, 5)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
        producer.commit_transaction(30)
        consumer.close()

    await asyncio.to_thread(consume_and_commit)
    found = await second.groups.committed_offsets(group)
    assert found.offsets[first.log.topics.partition("t", 0)].offset == 5
