"""Subscriptions through a whole broker: delivered, answered, saved, and still so after a restart."""

import asyncio
import dataclasses

import pytest

from millpond.catalog import subscriptions as catalog
from millpond.model.errors import (
    CatalogUnavailable,
    InvalidSubscription,
    SubscriptionBusy,
    SubscriptionExists,
    SubscriptionReplaced,
    UnknownSubscription,
    UnknownTopic,
)
from millpond.queues import AckResult, StartAt, SubscriptionStart
from millpond.queues.ackids import AckIdCodec, from_text, to_text
from millpond.queues.active_subscriptions import CHECK_EVERY_S
from millpond.records import Record, build_batch
from millpond.security import OPEN_ACCESS
from millpond.service import NewMessage

OK, STALE, UNKNOWN, NOT_OWNER = AckResult.OK, AckResult.STALE, AckResult.UNKNOWN, AckResult.NOT_OWNER


def values(held):
    return [each.value for each in held]


async def test_messages_are_delivered_in_order_and_those_acknowledged_never_again(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1", b"2", b"3")
    held = await worker.take(3)
    assert values(held) == [b"1", b"2", b"3"]
    assert await worker.ack(*held[:2]) == [OK, OK]
    assert await stage.floor() == 2
    await stage.restart()
    worker = await stage.worker()
    assert values(await worker.take()) == [b"3"]
    await worker.nothing()


async def test_every_subscription_gets_every_message(stage):
    for name in ("billing", "shipping"):
        await stage.subscribe(name)
    await stage.publish(b"1", b"2")
    for name in ("billing", "shipping"):
        worker = await stage.worker(name=name)
        held = await worker.take(2)
        assert values(held) == [b"1", b"2"]
        assert await worker.ack(*held) == [OK, OK]


async def test_a_refused_message_comes_again_with_its_count(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1")
    for attempts in range(4):
        [held] = await worker.take()
        assert (held.value, held.attempts) == (b"1", attempts)
        assert await worker.nack(held) == [OK]


async def test_the_count_of_failures_survives_a_restart(stage):
    await stage.subscribe(backoff_ms=0)
    worker = await stage.worker()
    await stage.publish(b"1")
    for _ in range(2):
        assert await worker.nack(*await worker.take()) == [OK]
    await worker.take()
    await stage.restart()
    worker = await stage.worker()
    [held] = await worker.take()
    assert held.attempts == 2


async def test_a_delivery_that_nobody_answers_comes_again(stage):
    await stage.subscribe(ack_timeout_ms=600_000)
    worker = await stage.worker()
    await stage.publish(b"1")
    [first] = await worker.take()
    await worker.nothing(300)
    await stage.advance_time(300)
    [second] = await worker.take()
    assert (second.value, second.attempts) == (b"1", 1)
    assert await worker.ack(first) == [STALE]
    assert await worker.ack(second) == [OK]


async def test_a_delivery_that_is_extended_does_not(stage):
    await stage.subscribe(ack_timeout_ms=60_000)
    worker = await stage.worker()
    await stage.publish(b"1")
    [held] = await worker.take()
    assert await worker.extend(held, by_ms=600_000) == [OK]
    await worker.nothing(90)
    assert await worker.ack(held) == [OK]


async def test_dropped_and_blocked_messages(stage):
    await stage.subscribe("dropping", attempts_max=1, on_exhausted="drop")
    await stage.subscribe("blocking", attempts_max=1, on_exhausted="block", mode="key_shared")
    await stage.publish(b"1", b"2", key=b"a")
    dropping = await stage.worker(name="dropping")
    held = await dropping.take(2)
    assert await dropping.nack(held[0]) == [OK]
    assert await dropping.ack(held[1]) == [OK]
    assert await stage.floor("dropping") == 2
    blocking = await stage.worker(name="blocking")
    assert await blocking.nack(*await blocking.take()) == [OK]
    await blocking.nothing()
    [key] = (await stage.broker.queues.describe("orders", "blocking")).partitions[0].keys
    assert (key.why, key.offset, key.waiting) == ("blocked", 0, 2)
    await stage.restart()
    blocking = await stage.worker(name="blocking")
    await blocking.nothing()
    assert await stage.broker.queues.unblock("orders", "blocking") == 1
    [held] = await blocking.take()
    assert (held.value, held.attempts) == (b"1", 0)
    assert await blocking.ack(held) == [OK]
    assert values(await blocking.take()) == [b"2"]
    assert not stage.broker.log.topics.knows("orders.dropping.dead")


async def test_messages_of_a_key_keep_their_order_whatever_fails(stage):
    await stage.subscribe(mode="key_shared", attempts_max=20, ack_timeout_ms=30_000)
    workers = [await stage.worker(f"worker-{number}") for number in range(2)]
    for number in range(10):
        for key in (b"a", b"b"):
            await stage.publish(b"%d" % number, key=key)
    seen = {b"a": [], b"b": []}
    failing = 0

    async def work(worker):
        nonlocal failing
        while sum(map(len, seen.values())) < 20:
            try:
                taken = await worker.take(1, 0.5)
            except TimeoutError:
                continue
            for held in taken:
                failing += 1
                if failing % 3 == 0:
                    assert await worker.nack(held, delay_ms=10) == [OK]
                else:
                    assert await worker.ack(held) == [OK]
                    seen[held.key].append(int(held.value))

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for worker in workers:
            group.create_task(work(worker))
    assert seen == {b"a": list(range(10)), b"b": list(range(10))}


async def test_exclusive_lets_one_in_and_failover_the_next_when_it_goes(stage):
    await stage.subscribe("exclusive", mode="exclusive")
    await stage.subscribe("failover", mode="failover")
    await stage.worker("first", "exclusive")
    with pytest.raises(SubscriptionBusy, match="'first' has it"):
        await stage.worker("second", "exclusive")
    first = await stage.worker("first", "failover")
    second = await stage.worker("second", "failover")
    await stage.publish(b"1", b"2", b"3")
    held = await first.take(3)
    assert values(held) == [b"1", b"2", b"3"]
    assert await first.ack(held[0]) == [OK]
    await second.nothing()
    first.leave()
    assert values(await second.take(2)) == [b"2", b"3"]


async def test_exclusive_keeps_order_when_a_message_fails(stage):
    await stage.subscribe(mode="exclusive")
    worker = await stage.worker()
    await stage.publish(b"1", b"2", b"3")
    held = await worker.take(3)
    assert await worker.nack(held[0]) == [OK]
    again = await worker.take(3)
    assert [(each.value, each.attempts) for each in again] == [(b"1", 1), (b"2", 0), (b"3", 0)]
    assert len(worker.revoked) == 2
    assert await worker.ack(held[1]) == [STALE]
    assert await worker.ack(again[2], cumulative=True) == [OK]
    assert await stage.floor() == 3


async def test_multicast_gives_everything_to_everybody(stage):
    await stage.subscribe(mode="multicast")
    await stage.publish(b"1", b"2")
    anna, bert = await stage.worker("anna"), await stage.worker("bert")
    for worker in (anna, bert):
        assert values(await worker.take(2)) == [b"1", b"2"]
    bert.leave()
    anna.leave()
    carl = await stage.worker("carl")
    held = await carl.take(2)
    assert await carl.ack(*held) == [OK, OK]
    carl.leave()
    carl = await stage.worker("carl")
    await carl.nothing()
    assert await stage.floor(member="carl") == 2
    assert await stage.floor(member="anna") == 0


async def test_a_consumer_of_the_same_name_takes_the_place_of_the_first(stage):
    await stage.subscribe()
    first = await stage.worker("same")
    await stage.publish(b"1")
    await first.take()
    second = await stage.worker("same")
    assert values(await second.take()) == [b"1"]
    with pytest.raises(SubscriptionReplaced):
        await first.take()


async def test_subscriptions_begin_where_they_are_told(stage):
    await stage.publish(b"0", b"1")
    await stage.advance_time(1)
    between = stage.broker.clock.now_ms()
    await stage.advance_time(1)
    await stage.publish(b"2")
    await stage.subscribe("earliest")
    await stage.subscribe("latest", start=SubscriptionStart(StartAt.LATEST))
    await stage.subscribe("offset", start=SubscriptionStart(StartAt.OFFSET, 1))
    await stage.subscribe("time", start=SubscriptionStart(StartAt.TIME, between))
    await stage.subscribe("too-far", start=SubscriptionStart(StartAt.OFFSET, 1_000))
    await stage.publish(b"3")
    expected = {
        "earliest": [b"0", b"1", b"2", b"3"],
        "latest": [b"3"],
        "offset": [b"1", b"2", b"3"],
        "time": [b"2", b"3"],
        "too-far": [b"3"],
    }
    for name, wanted in expected.items():
        worker = await stage.worker(name=name)
        assert values(await worker.take(len(wanted))) == wanted, name


async def test_a_reset_goes_back_and_consumers_go_on_from_there(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1", b"2")
    held = await worker.take(2)
    assert await worker.ack(held[0]) == [OK]
    await stage.broker.queues.reset("orders", "billing", SubscriptionStart(StartAt.EARLIEST))
    assert await worker.ack(held[1]) in ([STALE], [NOT_OWNER])
    assert values(await worker.take(2)) == [b"1", b"2"]
    assert isinstance(worker.lost[0], SubscriptionReplaced)


async def test_an_altered_config_holds_at_once(stage):
    await stage.subscribe(attempts_max=100, backoff_ms=0)
    worker = await stage.worker()
    await stage.publish(b"1")
    await worker.nack(*await worker.take())
    await stage.broker.queues.alter("orders", "billing", {"attempts_max": 2, "on_exhausted": "drop"})
    assert await worker.nack(*await worker.take()) == [OK]
    await worker.nothing()
    assert await stage.floor() == 1
    with pytest.raises(InvalidSubscription, match="mode cannot be altered"):
        await stage.broker.queues.alter("orders", "billing", {"mode": "key_shared"})


async def test_delays_that_producers_ask_for_are_honoured(stage):
    await stage.subscribe(ack_timeout_ms=3_600_000)
    worker = await stage.worker()
    at_ms = stage.broker.clock.now_ms() + 900_000
    await stage.publish(b"later", headers=(("millpond-deliver-at", b"%d" % at_ms),))
    await stage.publish(b"in a while", headers=(("millpond-delay", b"600000ms"),))
    await stage.publish(b"no time at all", headers=(("millpond-delay", b"soon"),))
    await stage.publish(b"now")
    assert values(await worker.take(2)) == [b"no time at all", b"now"]
    await worker.nothing(300)
    await stage.advance_time(300)
    assert values(await worker.take()) == [b"in a while"]
    await worker.nothing(150)
    await stage.advance_time(150)
    assert values(await worker.take()) == [b"later"]


async def test_a_slow_consumer_is_not_overrun(stage):
    await stage.subscribe()
    worker = await stage.worker(grant=0)
    await stage.publish(*[b"%d" % number for number in range(10)])
    await worker.nothing()
    worker.grant(3)
    assert len(await worker.take(3)) == 3
    await worker.nothing()
    worker.attachment.pause(paused=True)
    worker.grant(3)
    await worker.nothing()
    worker.attachment.pause(paused=False)
    assert len(await worker.take(3)) == 3


async def test_a_subscription_that_looks_no_further_says_so(stage, monkeypatch, caplog, eventually):
    """Once, and goes on when the old message is settled."""
    monkeypatch.setattr("millpond.queues.dispatcher.SPAN_MAX", 3)
    registry = stage.broker.metrics.registry

    async def is_full():
        return registry.get_sample_value("millpond_queue_full") == 1

    await stage.subscribe(ack_timeout_ms=60_000)
    worker = await stage.worker(grant=100)
    await stage.publish(b"1", b"2", b"3")
    held = await worker.take(3)
    await eventually(is_full)
    await stage.publish(b"4")
    await worker.nothing()
    [paused] = [each for each in caplog.records if "reading ahead paused" in each.message]
    assert (paused.topic, paused.partition, paused.messages) == ("orders", 0, 3)
    assert await worker.ack(*held) == [OK] * 3
    assert values(await worker.take()) == [b"4"]
    assert not await is_full()


async def test_bytes_are_counted_too(stage):
    await stage.subscribe()
    worker = await stage.worker(grant=0)
    await stage.publish(*[bytes(1_000)] * 10)
    worker.grant(100, 2_500)
    assert len(await worker.take(3)) == 3
    await worker.nothing()


async def test_expired_messages_are_passed_over(stage):
    """When nobody holds them any more."""
    await stage.subscribe(mode="key_shared", ack_timeout_ms=600_000)
    worker = await stage.worker()
    await stage.publish(b"1", b"2", key=b"a")
    [held] = await worker.take()
    await stage.broker.log.delete_records(stage.topic_partition(), 1)
    await stage.advance_time(600)
    assert values(await worker.take()) == [b"2"]
    assert await worker.ack(held) == [STALE]
    await stage.broker.log.delete_records(stage.topic_partition(), 2)
    await stage.publish(b"3", key=b"a")
    assert values(await worker.take()) == [b"3"]


async def test_only_what_transactions_committed_is_delivered(stage, eventually):
    transactions, log, topic_partition = stage.broker.transactions, stage.broker.log, stage.topic_partition()
    await stage.subscribe()
    worker = await stage.worker()
    for commit in (False, True):
        producer = await transactions.begin_producer("pay", 60_000, None)
        await transactions.add_partitions(producer, [topic_partition])
        identity = dict(zip(("producer_id", "producer_epoch"), producer.identity, strict=True))
        value = b"committed" if commit else b"aborted"
        batch = build_batch([Record(value)], **identity, base_sequence=0, transactional=True, now_ms=1)
        await log.append(topic_partition, batch)
        await stage.publish(b"behind it")
        await worker.nothing()  # nothing behind an open transaction is given to anybody
        await transactions.end(producer, commit=commit, bump_epoch=True)
        expected = [b"committed", b"behind it"] if commit else [b"behind it"]
        held = await worker.take(len(expected))
        assert values(held) == expected
        assert await worker.ack(*held) == [OK] * len(held)

    async def markers_are_settled_too():
        return await stage.floor() == log.partition(topic_partition).end_offset

    await eventually(markers_are_settled_too)


async def test_unknown_and_foreign_things_are_refused_by_name(stage):
    with pytest.raises(UnknownTopic, match="'nothing'"):
        await stage.subscribe(topic="nothing")
    with pytest.raises(UnknownSubscription, match="'orders' has no subscription 'billing'"):
        await stage.worker()
    await stage.subscribe()
    with pytest.raises(SubscriptionExists):
        await stage.subscribe()
    for bad in ("", "a/b", "..", "x" * 201, "ü"):
        with pytest.raises(InvalidSubscription, match="the name"):
            await stage.subscribe(bad)
    for values_ in ({"mode": "loud"}, {"attempts_max": 0}, {"ack_timeout_ms": "soon"}, {"color": "red"}):
        with pytest.raises(InvalidSubscription):
            await stage.subscribe("other", **values_)
    with pytest.raises(InvalidSubscription, match="needs a name"):
        await stage.worker("")


async def test_forged_foreign_and_malformed_ids_are_told_apart_and_harm_nobody(stage):
    await stage.subscribe()
    await stage.subscribe("shipping")
    worker, other = await stage.worker(), await stage.worker(name="shipping")
    await stage.publish(b"1")
    [held], [foreign] = await worker.take(), await other.take()
    forged = AckIdCodec(b"not the secret", worker.attachment.subscription.id, "").encode(0, 1, 0, 1)
    flipped = bytes([*held.ack_id[:-1], held.ack_id[-1] ^ 1])
    bad = [foreign.ack_id, forged, flipped, b"", b"x" * 33, held.ack_id * 2, from_text("!!"), bytes(33)]
    assert await worker.attachment.ack(bad) == [UNKNOWN] * len(bad)
    assert await worker.attachment.nack(bad) == [UNKNOWN] * len(bad)
    assert await worker.attachment.extend(bad, 1_000) == [UNKNOWN] * len(bad)
    assert from_text(to_text(held.ack_id)) == held.ack_id
    assert await worker.ack(held, held) == [OK, STALE]
    assert await other.ack(foreign) == [OK]


async def test_ids_of_an_earlier_life_are_stale(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1")
    [held] = await worker.take()
    await stage.restart()
    worker = await stage.worker()
    [again] = await worker.take()
    assert await worker.ack(held) == [STALE]
    assert await worker.ack(again) == [OK]


async def test_a_deleted_topic_ends_its_consumers(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.broker.log.delete_topic("orders")
    with pytest.raises((UnknownTopic, UnknownSubscription)):
        await worker.take()
    await stage.topic()
    with pytest.raises(UnknownSubscription):
        await stage.worker()


async def test_a_deleted_subscription_ends_its_consumers(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1")
    [held] = await worker.take()
    await stage.broker.queues.delete("orders", "billing")
    with pytest.raises(UnknownSubscription):
        await worker.take()
    assert await worker.ack(held) == [NOT_OWNER]


async def test_partitions_that_are_added_are_delivered_too(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.broker.log.add_partitions("orders", 2)
    await stage.publish(b"new", partition=1)
    await stage.advance_time(CHECK_EVERY_S)
    [held] = await worker.take()
    assert (held.value, held.partition) == (b"new", 1)
    assert await worker.ack(held) == [OK]


async def test_a_dispatcher_that_lost_its_partition_confirms_nothing(stage):
    """As a broker that was paused and comes back: somebody else has taken the state meanwhile."""
    subscription = await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1")
    [held] = await worker.take()
    state_key = catalog.StateKey(subscription.id, "", 0)
    with stage.broker.database.write() as tx:
        catalog.take(tx, subscription, state_key, owner=stage.broker.session, topic="orders")
    assert await worker.ack(held) == [NOT_OWNER]
    assert await stage.floor() == 0
    [again] = await worker.take()
    assert (again.value, again.attempts) == (b"1", 0)
    assert await worker.ack(again) == [OK]


async def test_answers_wait_while_the_catalog_is_away_and_are_saved_when_it_is_back(stage, monkeypatch):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1")
    [held] = await worker.take()
    saved, refusals = catalog.save, 3

    def refuse(tx, saves):
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise CatalogUnavailable(reason="it is away")
        return saved(tx, saves)

    monkeypatch.setattr(catalog, "save", refuse)
    assert await worker.ack(held) == [OK]
    assert refusals == 0
    assert await stage.floor() == 1


async def test_groups_and_subscriptions_of_a_topic_do_not_meddle(stage):
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1", b"2")
    held = await worker.take(2)
    assert await worker.ack(*held) == [OK, OK]
    assert await stage.values("orders") == [b"1", b"2"]
    assert (await stage.broker.groups.committed_offsets("billing")).offsets == {}


async def test_a_key_with_a_long_backlog_is_read_again_from_the_log(stage):
    """More of one key than is kept in memory, behind a message that waits: others go on, and none is forgotten."""
    await stage.subscribe(mode="key_shared", ack_timeout_ms=60_000)
    slow, count = await stage.worker(grant=10_000), 3_000
    await stage.publish(*[b"%d" % number for number in range(count)], key=b"hot")
    [first] = await slow.take()
    await stage.publish(b"other", key=b"cold")
    [other] = await slow.take()
    assert other.value == b"other"
    assert await slow.ack(other) == [OK]
    assert stage.dispatcher().tracked <= 1_100
    seen = [first.value]
    assert await slow.ack(first) == [OK]
    while len(seen) < count:
        held = await slow.take()
        assert await slow.ack(*held) == [OK] * len(held)
        seen += values(held)
    assert seen == [b"%d" % number for number in range(count)]


async def test_consume_and_produce_is_one_thing(stage):
    await stage.topic("out")
    await stage.subscribe()
    worker = await stage.worker()
    await stage.publish(b"1", b"2")
    held = await worker.take(2)
    queues = stage.broker.queues

    async def commit(deliveries, *produced):
        batches, _ = await stage.broker.messages.batches_of(
            [NewMessage("out", None, Record(value)) for value in produced], access=OPEN_ACCESS
        )
        ids = [each.ack_id for each in deliveries]
        return (await queues.commit("orders", "billing", "worker", ids, batches))[0]

    assert await commit(held[:1], b"one", b"eins") == [OK]
    assert await commit(held, b"one again") == [STALE, OK]
    assert await stage.values("out") == [b"one", b"eins"]
    assert await stage.floor() == 1
    assert await commit(held[1:], b"two") == [OK]
    assert await stage.values("out") == [b"one", b"eins", b"two"]
    assert await stage.floor() == 2


async def test_members_of_a_multicast_are_counted(stage, monkeypatch):
    await stage.subscribe(mode="multicast")
    queues = stage.broker.queues
    monkeypatch.setattr(queues, "_limits", dataclasses.replace(queues._limits, consumers_max=2))
    for name in ("anna", "bert", "anna"):
        (await stage.worker(name)).leave()
    with pytest.raises(SubscriptionBusy, match="2 consumers have a state of their own"):
        await stage.worker("carl")


async def test_a_paused_consumer_stays_paused_for_partitions_that_come_later(stage):
    await stage.subscribe()
    worker = await stage.worker()
    worker.attachment.pause(paused=True)
    await stage.broker.log.add_partitions("orders", 2)
    await stage.publish(b"new", partition=1)
    await worker.nothing(CHECK_EVERY_S)
    worker.attachment.pause(paused=False)
    assert values(await worker.take()) == [b"new"]
