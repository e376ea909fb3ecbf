"""Races between handing over, being asked, and being told: what a reader with fresh eyes tried to break."""

import asyncio
import json
import os
import signal
from dataclasses import replace

import confluent_kafka
import grpc
import pytest
from tests.unit.cluster.conftest import until

from millpond.broker import Broker
from millpond.catalog import topology, writers
from millpond.catalog.coordinators import shard_of
from millpond.catalog.groups import GroupOffset
from millpond.catalog.schema import COORDINATOR_SHARDS
from millpond.cli import serve
from millpond.cluster import Nudges
from millpond.groups import JoinRequest, Protocol
from millpond.groups.snapshot import Snapshot
from millpond.model.errors import CatalogUnavailable, NotCoordinator, NotOwner, ProducerFenced, Unavailable
from millpond.model.partitioning import partition_of
from millpond.records import Record
from millpond.settings import Settings

JOIN = JoinRequest("", "c", "", 6_000, 60_000, "consumer", [Protocol("range", b"")], require_known_id=False)


def owned(broker):
    return {partition.where for partition in broker.log.partitions()}


async def two(brokers, partitions=0):
    first, second = await brokers.add(), await brokers.add()
    await until(lambda: len(second.coordinator_epochs) == COORDINATOR_SHARDS // 2)
    if partitions:
        await first.log.create_topic("t", partitions)
    return first, second


def keys_for(number, partitions, count):
    keys = (b"%d" % each for each in range(10_000))
    return [key for key in keys if partition_of(key, partitions) == number][:count]


async def test_requests_of_one_caller_stay_in_order_when_some_go_to_several_brokers(brokers):
    first, second = await two(brokers, 2)
    mine, others = next(iter(owned(first))).partition, next(iter(owned(second))).partition
    [key], [foreign] = keys_for(mine, 2, 1), keys_for(others, 2, 1)
    answers = []
    for number in range(60):
        records = [Record(value=b"%d" % number, key=key)]
        if number % 3 == 1:
            records.append(Record(value=b"elsewhere", key=foreign))
        answers.append(await first.messages.submit("t", records))
    await asyncio.gather(*answers)
    found = [int(record.value) for record in await first.read("t", partition=mine)]
    assert found == list(range(60))


class Silent(grpc.GenericRpcHandler):
    """A broker that hangs: it takes calls and answers none."""

    def __init__(self):
        self.called = asyncio.Event()

    def service(self, _):
        async def hang(request, context):
            self.called.set()
            await asyncio.sleep(60)

        return grpc.unary_unary_rpc_method_handler(hang)


@pytest.fixture
async def silent(patient_nudges):
    server = grpc.aio.server()
    handler = Silent()
    server.add_generic_rpc_handlers((handler,))
    handler.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    yield handler
    await server.stop(None)


async def test_who_waits_for_nudges_is_not_cancelled_when_a_broker_is_forgotten(silent):
    """Somebody makes a topic while a broker that hangs is declared dead: the topic is made all the same."""
    nudges = Nudges()
    waiting = asyncio.create_task(nudges.send([silent.address]))
    await silent.called.wait()
    await nudges.send([])
    await asyncio.wait([waiting])
    await nudges.close()
    assert not waiting.cancelled()
    assert waiting.exception() is None


async def test_a_refresh_does_not_take_shards_back_that_are_being_given(brokers):
    first = await brokers.add()
    let_go = first.groups.let_go
    kept = []

    async def let_go_while_the_topology_changes(shards):
        await let_go(shards)
        await first.log.create_topic("made-meanwhile")
        kept.extend(shard for shard in shards if shard in first.coordinator_epochs)

    first.membership._handover = replace(first.membership._handover, shards=let_go_while_the_topology_changes)
    second = await brokers.add()
    await until(lambda: len(second.coordinator_epochs) == COORDINATOR_SHARDS // 2)
    assert first.log.topics.knows("made-meanwhile")
    assert not kept


async def test_shards_that_could_not_be_given_are_kept(brokers):
    first = await brokers.add()
    handover, refused = first.membership._handover, []

    async def refuse(shards):
        refused.append(shards)
        raise Unavailable

    first.membership._handover = replace(handover, shards=refuse)
    second = await brokers.add()
    await until(lambda: refused)
    with pytest.raises(Unavailable):
        await first.membership.balance()
    assert len(first.coordinator_epochs) == COORDINATOR_SHARDS
    first.membership._handover = handover
    await until(lambda: len(second.coordinator_epochs) == COORDINATOR_SHARDS // 2)


async def test_a_group_that_is_read_while_its_shard_goes_is_not_kept(brokers):
    first = await brokers.add()
    groups, shard = first.groups, shard_of("g")
    await groups._store.save(groups._store.place("g"), Snapshot(3, "consumer"))
    load, began, may_end = groups._store.load, asyncio.Event(), asyncio.Event()

    async def slow(group_id):
        began.set()
        await may_end.wait()
        return await load(group_id)

    groups._store.load = slow
    asked = asyncio.create_task(groups.join("g", JOIN))
    await began.wait()
    first.coordinator_epochs.pop(shard)
    await groups.let_go([shard])
    may_end.set()
    with pytest.raises(NotCoordinator):
        async with asyncio.timeout(5):
            await asked
    assert "g" not in groups._memory


async def test_members_are_sent_away_when_their_shard_is_elsewhere(brokers):
    """As when nobody could tell whether the shard was given: the catalog says so later."""
    first = await brokers.add(group_initial_rebalance_delay=60_000)
    second = await brokers.add()
    await until(lambda: len(second.coordinator_epochs) == COORDINATOR_SHARDS // 2)
    group = next(f"g{number}" for number in range(100) if first.groups._store.keeps(f"g{number}"))
    waiting = asyncio.create_task(first.groups.join(group, JOIN))
    await until(lambda: group in first.groups._memory)
    shard = shard_of(group)

    def give(tx):
        topology.move(tx)
        gifts = {shard: (first.coordinator_epochs[shard], second.session)}
        return topology.give_shards(tx, first.session, gifts)

    assert await first.log.write(give) == 1
    await first.log.refresh()
    with pytest.raises(NotCoordinator):
        async with asyncio.timeout(5):
            await waiting


async def test_what_is_given_is_not_served_until_the_view_is_renewed(brokers):
    first = await brokers.add()
    await first.log.create_topic("t", 8)
    refresh, served = first.log._view.refresh, []

    async def look_first():
        owners = await first.log.read(topology.owners)
        served.extend(
            where
            for where, owner in owners.items()
            if owner.session != first.session and first.log.owns(where)
        )
        await refresh()

    first.log._view.refresh = look_first
    second = await brokers.add()
    await until(lambda: len(owned(second)) == 4)
    assert not served


async def test_a_subscription_does_not_begin_on_a_partition_that_is_being_given(brokers):
    first = await brokers.add()
    await first.log.create_topic("t", 2)
    await first.queues.create("t", "s")
    [given, kept] = (first.log.topics.partition("t", number) for number in range(2))
    at_work = first.queues._at_work
    take = at_work._take

    async def take_while_one_goes(active, standings):
        taken = await take(active, standings)
        await first.queues.let_go([given])
        return taken

    at_work._take = take_while_one_goes
    attachment = await first.queues.attach("t", "s", "c")
    assert [queue.where for queue in attachment.queues.values()] == [kept]
    at_work._take = take
    first.queues.keep([given])
    await until(lambda: len(attachment.queues) == 2)


class GivesAway(dict):
    """Shards that are given away by the loop between two looks of the writer's thread."""

    def __contains__(self, shard):
        found = super().__contains__(shard)
        self.pop(shard, None)
        return found


async def test_a_transaction_whose_shard_goes_meanwhile_is_sent_on(brokers):
    first = await brokers.add()
    first.transactions._epochs = GivesAway(first.coordinator_epochs)
    with pytest.raises(NotOwner):
        await first.transactions.begin_producer("tx", 1_000)


async def test_one_that_was_declared_dead_waits_for_a_catalog_that_is_away(tmp_path, monkeypatch, capsys):
    lives, away = [], iter([CatalogUnavailable(reason="away"), CatalogUnavailable(reason="away")])

    class Unlucky(Broker):
        async def start(self):
            if lives:
                for error in away:
                    raise error
            await super().start()
            lives.append(self)

    monkeypatch.setattr(serve, "Broker", Unlucky)
    monkeypatch.setattr(serve, "JOIN_AGAIN_S", 0.01)
    settings = Settings(data_dir=tmp_path, kafka_listen="", grpc_listen="127.0.0.1:0", http_listen="")
    serving = asyncio.create_task(serve._serve(settings, True, True))
    try:
        await until(lambda: len(lives) == 1)
        [first] = lives
        await first.log.create_topic("t")
        await first.log.write(lambda tx: writers.bury(tx, first.session, 1))
        await until(lambda: len(lives) == 2 or serving.done())
        again = lives[-1]
        await until(lambda: serving.done() or (again.bound == first.bound and again.log.partitions()))
        await again.produce("t", b"x")
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
    sessions = [json.loads(line)["session"] for line in capsys.readouterr().out.splitlines()]
    assert sessions == [first.session, again.session]
    assert first is not again


def named_where(prefix, keeps):
    return next(f"{prefix}{number}" for number in range(200) if keeps(f"{prefix}{number}"))


async def test_the_owner_of_a_partition_lets_it_join_a_transaction_that_another_coordinates(brokers):
    """Kafka's producers since KIP-890 name new partitions of a transaction to nobody but the partitions' leaders."""
    first, second = await two(brokers, 4)
    transactional_id = named_where("tx", first.groups._store.keeps)
    producer = await first.transactions.begin_producer(transactional_id, 60_000)
    where, other = sorted(owned(second))
    await second.transactions.ensure_partitions(producer, [where])
    assert await first.transactions.partitions_of(producer) == [where]
    assert second.log.partition(where).ongoing.includes(*producer.identity)
    await first.transactions.begin_producer(transactional_id, 60_000)
    with pytest.raises(ProducerFenced):
        await second.transactions.ensure_partitions(producer, [other])


async def test_a_transaction_takes_offsets_of_a_group_that_another_broker_keeps(brokers):
    """Kafka's producers send the offsets to the group's coordinator."""
    first, second = await two(brokers, 2)
    transactional_id = named_where("tx", first.groups._store.keeps)
    group = named_where("g", second.groups._store.keeps)
    where = next(iter(owned(second)))
    producer = await first.transactions.begin_producer(transactional_id, 60_000)
    await first.transactions.add_group(producer, group)
    await second.transactions.add_offsets(producer, group, [GroupOffset(where, 7)])
    await first.transactions.end(producer, commit=True, bump_epoch=False)
    assert (await second.groups.committed_offsets(group)).offsets[where].offset == 7
    with pytest.raises(NotOwner):
        await first.transactions.add_offsets(producer, group, [GroupOffset(where, 8)])


async def test_confluent_kafka_sends_offsets_of_a_group_that_another_broker_keeps(brokers):
    first, second = await two(brokers, 2)
    await first.produce("t", b"x", partition=next(iter(owned(first))).partition)
    transactional_id = named_where("tx", first.groups._store.keeps)
    group = named_where("g", second.groups._store.keeps)

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
