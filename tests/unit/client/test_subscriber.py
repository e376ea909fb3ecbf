"""Subscribers and publishers against a broker: what is delivered, what an answer comes to, and how they leave."""

import asyncio
import logging
import re
from collections import defaultdict
from datetime import UTC, datetime
from functools import partial

import pytest
from tests.loop_time import LoopClock

from millpond import AsyncAdmin, AsyncConsumer, AsyncPublisher, AsyncSubscriber, Outcome
from millpond.model.errors import (
    InvalidRequest,
    InvalidSubscription,
    RecordTooLarge,
    StaleDelivery,
    Stopping,
    SubscriptionBusy,
    SubscriptionDiffers,
    SubscriptionReplaced,
    UnknownPartition,
    UnknownSubscription,
    UnknownTopic,
)
from millpond.testing import running_broker

WAIT_SECONDS_MAX = 30


class Setting:
    def __init__(self, broker):
        self.broker = broker
        self.address = broker.listeners["grpc"]
        self.admin = partial(AsyncAdmin, address=self.address)
        self.publisher = partial(AsyncPublisher, address=self.address)
        self.subscriber = partial(AsyncSubscriber, "t", "s", address=self.address)

    async def publish(self, *pairs, topic="t", **named):
        async with self.publisher() as publisher:
            return [await publisher.send(data, topic=topic, key=key, **named) for key, data in pairs]

    async def state(self):
        async with self.admin() as admin:
            return await admin.describe_subscription("t", "s")


@pytest.fixture
async def setting(tmp_path):
    async with running_broker(tmp_path, grpc=True) as broker:
        await broker.log.create_topic("t", 2, {})
        await broker.queues.create("t", "s", {"mode": "key_shared", "backoff_ms": 0})
        yield Setting(broker)


async def take(subscriber, count):
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return [await anext(subscriber) for _ in range(count)]


async def until(is_true):
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not await is_true():
            await asyncio.sleep(0.01)


# -- deliveries ------------------------------------------------------------------------------------------------------


async def test_a_delivery_tells_everything_about_its_message(setting):
    [placed] = await setting.publish((b"k", b"body"), attributes={"kind": "order", "none": None})
    async with setting.subscriber() as subscriber:
        [delivery] = await take(subscriber, 1)
        about = delivery.metadata
        assert (about.topic, about.partition, about.number) == ("t", *placed)
        assert (about.key, about.attributes) == (b"k", {"kind": b"order", "none": None})
        assert (about.id, about.retry_count) == (f"t/{placed.partition}/1", 0)
        assert about.publish_time_ms > 0
        assert about.age_s >= 0
        assert delivery.value == await delivery.data() == b"body"


async def test_an_ack_that_was_awaited_is_durable(setting):
    await setting.publish((b"k", b"a"), (b"k", b"b"))
    async with setting.subscriber() as subscriber:
        [first] = await take(subscriber, 1)
        assert await first.ack() is Outcome.OK
        assert first.is_answered
        state = await setting.state()
        assert state.backlog == 1
        assert [each.name for each in state.consumers] == [subscriber.consumer]


async def test_a_nack_brings_it_back_with_its_count_and_after_its_delay(setting):
    await setting.publish((b"k", b"a"))
    async with setting.subscriber() as subscriber:
        for count in range(3):
            [delivery] = await take(subscriber, 1)
            assert delivery.metadata.retry_count == count
            assert await delivery.nack(0.05) is Outcome.OK
            assert await delivery.ack() is Outcome.OK, "the first answer counts, and is returned"
        [delivery] = await take(subscriber, 1)
        assert delivery.metadata.retry_count == 3


async def test_a_stale_answer_is_told_and_harms_nobody(setting):
    await setting.broker.queues.alter("t", "s", {"ack_timeout_ms": 1_000})
    await setting.publish((b"k", b"a"))
    async with setting.subscriber(prefetch=1) as subscriber:
        [first] = await take(subscriber, 1)
        await setting.broker.queues.alter("t", "s", {"ack_timeout_ms": 10_000})  # for the next one
        [again] = await take(subscriber, 1)
        assert await first.ack() is Outcome.STALE
        assert await first.extend(10) is Outcome.STALE
        assert await again.extend(10) is Outcome.OK
        assert await again.ack() is Outcome.OK
        assert await subscriber.flush() == [(first, Outcome.STALE)] * 2
        assert await subscriber.flush() == []


async def test_acks_that_nobody_awaits_are_collected_by_flush(setting):
    await setting.publish(*[(b"%d" % number, b"x") for number in range(50)])
    async with setting.subscriber() as subscriber:
        for delivery in await take(subscriber, 50):
            delivery.ack()
        assert await subscriber.flush() == []
        assert (await setting.state()).backlog == 0


async def test_a_value_that_was_left_out_is_fetched_when_asked_for(setting):
    await setting.publish((b"k", bytes(1_000)))
    for named in ({"value_bytes_max": 100}, {"metadata_only": True}):
        async with setting.subscriber(**named) as subscriber:
            [delivery] = await take(subscriber, 1)
            assert (delivery.value, await delivery.data()) == (None, bytes(1_000))


async def test_a_body_by_reference_is_uploaded_and_downloaded(setting):
    await setting.broker.log.create_topic("films", 1, {"payload": "reference"})
    await setting.publish((b"k", b"a long film"), (b"k", None), topic="films")
    create = {"mode": "exclusive"}
    async with AsyncSubscriber("films", "s", address=setting.address, create=create) as subscriber:
        film, nothing = await take(subscriber, 2)
        assert (film.value, await film.data(), await nothing.data()) == (None, b"a long film", None)
        assert b"bytes=11" in film.metadata.attributes["millpond-payload"]


async def test_only_large_bodies_go_by_reference_where_the_topic_says_so(setting):
    limits = {"payload": "large", "max.message.bytes": "10000"}
    await setting.broker.log.create_topic("mixed", 1, limits)
    bodies = [b"small", bytes(5_000), bytes(5_001), bytes(1_000_000)]
    await setting.publish(*[(b"k", body) for body in bodies], topic="mixed")
    create = {"mode": "exclusive"}
    async with AsyncSubscriber("mixed", "s", address=setting.address, create=create) as subscriber:
        held = await take(subscriber, len(bodies))
        assert [await each.data() for each in held] == bodies
        by_reference = ["millpond-payload" in each.metadata.attributes for each in held]
        assert by_reference == [False, False, True, True]


@pytest.mark.parametrize("payload", ["large", "reference"])
async def test_bodies_by_reference_keep_the_order_of_their_key_though_uploads_do_not(
    setting, monkeypatch, settle, payload
):
    await setting.broker.log.create_topic("mixed", 1, {"payload": payload, "max.message.bytes": "2000"})
    sizes = [4_000, 10, 3_000, None, 1_500, 20]
    async with setting.publisher(inline_bytes_max=100) as publisher:
        upload, uploading, gates = publisher._bodies.upload, [], defaultdict(asyncio.Event)

        async def upload_slowly(topic, body):
            uploading.append(len(body))
            await gates[len(body)].wait()
            return await upload(topic, body)

        async def all_upload():
            return len(uploading) == 3

        monkeypatch.setattr(publisher._bodies, "upload", upload_slowly)
        for _ in range(2):  # a producer that does not know its topic yet, and one that does
            calls = [
                asyncio.ensure_future(
                    publisher.send(None if size is None else bytes(size), topic="mixed", key=b"k")
                )
                for size in sizes
            ]
            await until(all_upload)
            calls[2].cancel()
            for size in (1_500, 4_000):
                await settle()
                gates[size].set()
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(done.pop(2), asyncio.CancelledError)
            assert [each.number for each in done] == sorted(each.number for each in done)
            assert len(publisher._turns) == 0
            uploading.clear()
            gates.clear()


async def test_delayed_messages_come_when_it_is_time(tmp_path, loop_time):
    async with running_broker(tmp_path, grpc=True, clock=LoopClock(loop_time)) as broker:
        await broker.log.create_topic("t", 1, {})
        await broker.queues.create("t", "s", {"ack_timeout_ms": 600_000})
        setting = Setting(broker)
        await setting.publish((b"later", b"x"), deliver_at=datetime(2200, 1, 1, tzinfo=UTC))
        await setting.publish((b"soon", b"x"), delay=24)
        await setting.publish((b"now", b"x"))
        async with setting.subscriber() as subscriber:
            [now] = await take(subscriber, 1)
            await now.ack()
            loop_time.advance(12)
            assert await subscriber.receive(0.05) is None
            loop_time.advance(12)
            [soon] = await take(subscriber, 1)
            await soon.ack()
            loop_time.advance(12)
            assert await subscriber.receive(0.05) is None
    assert (now.key, soon.key) == (b"now", b"soon")


async def test_nothing_is_received_when_there_is_nothing(setting):
    async with setting.subscriber() as subscriber:
        assert await subscriber.receive(0.05) is None
        waiting = asyncio.ensure_future(subscriber.receive())
        await asyncio.sleep(0)
        await subscriber.close()
        with pytest.raises(Stopping):
            await waiting


# -- flow ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 7, 100])
async def test_never_more_than_the_prefetch_is_outstanding(setting, prefetch):
    await setting.publish(*[(b"%d" % number, b"x") for number in range(150)])
    async with setting.subscriber(prefetch=prefetch) as subscriber:
        for _ in range(150):
            [delivery] = await take(subscriber, 1)
            consumers = (await setting.state()).consumers
            assert sum(each.leased + each.credit for each in consumers) <= prefetch + 1, (
                "and the one that was taken"
            )
            await delivery.ack()


async def test_a_paused_subscriber_is_sent_nothing(setting):
    async with setting.subscriber() as subscriber:
        await until(lambda: _is_attached(setting))
        await subscriber.pause()
        await until(lambda: _is_paused(setting))
        await setting.publish((b"k", b"x"))
        assert await subscriber.receive(0.1) is None
        await subscriber.resume()
        assert len(await take(subscriber, 1)) == 1


async def _is_attached(setting):
    return bool((await setting.state()).consumers)


async def _is_paused(setting):
    return (await setting.state()).consumers[0].paused


# -- workers ---------------------------------------------------------------------------------------------------------


async def test_workers_keep_the_order_of_keys_and_bring_failures_back(setting):
    keys = [b"a", b"b", b"c"]
    await setting.publish(*[(keys[number % 3], b"%d" % number) for number in range(60)])
    seen, running, failed = defaultdict(list), set(), set()

    async def handle(delivery):
        assert delivery.key not in running, "of a key only one at a time"
        running.add(delivery.key)
        await asyncio.sleep(0)
        running.discard(delivery.key)
        number = int(delivery.value)
        if number % 10 == 0 and number not in failed:
            failed.add(number)
            raise ValueError(number)
        seen[delivery.key].append(number)
        if sum(map(len, seen.values())) == 60:
            asyncio.get_running_loop().create_task(subscriber.close())

    subscriber = setting.subscriber()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await subscriber.run(handle, workers=4)
    await subscriber.close()
    assert seen == {key: list(range(place, 60, 3)) for place, key in enumerate(keys)}
    assert len(failed) == 6
    assert (await setting.state()).backlog == 0


@pytest.mark.parametrize("config", [{"mode": "key_shared", "key_window": 8}, {"mode": "exclusive"}])
async def test_what_follows_a_refused_message_is_not_handled_before_it_though_it_has_come(setting, config):
    await setting.broker.queues.create("t", "pipelined", {"backoff_ms": 0, **config})
    await setting.publish(*[(b"k", b"%d" % number) for number in range(80)])
    handled, refused = [], set()

    def handle(delivery):
        number = int(delivery.value)
        if number % 7 == 3 and number not in refused:
            refused.add(number)
            delivery.nack(0)
            return
        handled.append(number)
        if number == 79:
            closing.append(asyncio.ensure_future(subscriber.close()))

    closing = []
    subscriber = AsyncSubscriber("t", "pipelined", address=setting.address)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await subscriber.run(handle, workers=3)
        await asyncio.gather(*closing)
    assert handled == list(range(80))
    assert len(refused) == 11


async def test_a_handler_may_answer_itself_and_need_not_be_async(setting):
    await setting.publish((b"k", b"x"))
    counts = []

    def handle(delivery):
        counts.append(delivery.metadata.retry_count)
        if len(counts) < 3:
            delivery.nack(0)
        else:
            asyncio.get_running_loop().call_soon(
                lambda: closing.append(asyncio.ensure_future(subscriber.close()))
            )

    closing = []
    subscriber = setting.subscriber()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await subscriber.run(handle)
        await asyncio.gather(*closing)
    assert counts == [0, 1, 2]


async def test_what_a_handler_raises_is_the_reason(setting, monkeypatch):
    """So is what it says itself, whatever the text is. The errors are not logged here: where PySpark was used before in
    this process, its formatter calls `str` of each error, and pytest raises what that raises."""
    monkeypatch.setattr(logging.getLogger("millpond.client.workers"), "propagate", False)

    class Unprintable(Exception):
        def __str__(self):
            raise RuntimeError

    await setting.broker.queues.alter("t", "s", {"attempts_max": 4, "on_exhausted": "block", "backoff_ms": 0})
    await setting.publish((b"k", b"x"))
    raised = [ValueError("no color\nat all"), KeyError(), Unprintable()]

    async def handle(delivery):
        if raised:
            raise raised.pop(0)
        delivery.nack(reason="\ud800" + "ä" * 2_000)
        closing.append(asyncio.ensure_future(subscriber.close()))

    closing = []
    subscriber = setting.subscriber()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await subscriber.run(handle)
        await asyncio.gather(*closing)
    [failing] = [each for partition in (await setting.state()).partitions for each in partition.failing]
    assert (failing.attempts, failing.why, failing.reasons) == (
        4,
        "blocked",
        ["ValueError: no color at all", "KeyError", "Unprintable", "?" + "ä" * 248 + "…"],
    )


async def test_a_handler_whose_own_work_was_cancelled_has_failed_and_its_worker_goes_on(setting):
    await setting.publish((b"k", b"x"), (b"k", b"y"))
    handled = []

    async def handle(delivery):
        handled.append((delivery.value, delivery.metadata.retry_count))
        if len(handled) == 1:
            gone = asyncio.get_running_loop().create_future()
            gone.cancel()
            await gone
        if len(handled) == 3:
            closing.append(asyncio.ensure_future(subscriber.close()))

    closing = []
    subscriber = setting.subscriber()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await subscriber.run(handle)
        await asyncio.gather(*closing)
    assert handled == [(b"x", 0), (b"x", 1), (b"y", 0)]


async def test_whoever_cancels_run_ends_its_handlers(setting):
    await setting.publish((b"k", b"x"))
    begun = asyncio.Event()

    async def handle(_):
        begun.set()
        await asyncio.Event().wait()

    async with setting.subscriber() as subscriber:
        running = asyncio.ensure_future(subscriber.run(handle))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running


# -- several at a time -----------------------------------------------------------------------------------------------


async def test_keys_are_shared_among_subscribers_and_each_is_in_order(setting):
    keys = [b"%d" % number for number in range(20)]
    await setting.publish(*[(key, b"%d" % number) for number in range(10) for key in keys])
    seen = defaultdict(list)

    async def consume(subscriber):
        async for delivery in subscriber:
            seen[delivery.key].append((int(delivery.value), subscriber.consumer))
            delivery.ack()

    async with setting.subscriber() as one, setting.subscriber() as two:
        await until(lambda: _are_attached(setting, 2))
        tasks = [asyncio.ensure_future(consume(each)) for each in (one, two)]
        await until(lambda: _is_done(setting))
        await asyncio.gather(one.close(), two.close(), *tasks)
    assert {key: [number for number, _ in found] for key, found in seen.items()} == {
        key: list(range(10)) for key in keys
    }


async def _are_attached(setting, count):
    return len((await setting.state()).consumers) == count


async def _is_done(setting):
    return (await setting.state()).backlog == 0


async def test_who_closes_gives_back_what_was_not_answered_uncharged(setting):
    await setting.publish((b"k", b"x"))
    async with setting.subscriber() as first:
        await take(first, 1)
    async with setting.subscriber() as second:
        [delivery] = await take(second, 1)
        assert delivery.metadata.retry_count == 0


# -- transactions ----------------------------------------------------------------------------------------------------


async def test_a_transaction_acknowledges_and_publishes_together(setting):
    await setting.publish((b"k", b"order"))
    async with setting.subscriber() as subscriber:
        [delivery] = await take(subscriber, 1)
        async with subscriber.transaction() as transaction:
            transaction.ack(delivery)
            transaction.publish(b"invoice", topic="invoices", key=b"k", attributes={"for": "k"})
        assert transaction.placed == [(0, 1)]
        assert delivery.is_answered
        with pytest.raises(InvalidRequest):
            transaction.ack(delivery)
    async with AsyncConsumer("invoices", address=setting.address) as consumer:
        [invoice] = (await consumer.poll()).messages
    assert (invoice.value, invoice.headers) == (b"invoice", (("for", b"k"),))
    assert (await setting.state()).backlog == 0


async def test_a_transaction_that_fails_does_nothing(setting):
    await setting.publish((b"k", b"order"))
    async with setting.subscriber() as subscriber:
        [delivery] = await take(subscriber, 1)
        with pytest.raises(ZeroDivisionError):
            await _failing(subscriber.transaction(), delivery)
        async with subscriber.transaction():
            pass  # nothing is nothing
        assert await delivery.ack() is Outcome.OK, "it is still to be answered"


async def _failing(transaction, delivery):
    async with transaction:
        transaction.ack(delivery)
        raise ZeroDivisionError


async def test_a_transaction_with_a_delivery_that_has_gone_to_others_does_nothing(setting):
    await setting.broker.queues.alter("t", "s", {"ack_timeout_ms": 1_000})
    await setting.publish((b"k", b"order"))
    async with setting.subscriber() as subscriber:
        [old] = await take(subscriber, 1)
        await setting.broker.queues.alter("t", "s", {"ack_timeout_ms": 10_000})  # for the next one
        [new] = await take(subscriber, 1)
        transaction = subscriber.transaction()
        transaction.ack(old)
        transaction.publish(b"invoice", topic="invoices", key=b"k")
        with pytest.raises(StaleDelivery) as refused:
            await transaction.commit()
        assert refused.value.facts["number"] == 1
        assert not setting.broker.log.topics.knows("invoices"), "a refused commit creates no topic"
        assert transaction.placed == []
        assert await new.ack() is Outcome.OK


@pytest.mark.parametrize(
    ("published", "error"),
    [
        (("invoices", b"k", bytes(2_000_000)), RecordTooLarge),
        (("invoices", b"k", b"x", 1), UnknownPartition),
        (("t", b"k", bytes(2_000_000)), RecordTooLarge),
    ],
)
async def test_a_transaction_with_a_message_that_is_refused_creates_no_topic(setting, published, error):
    topic, key, data, *partition = published
    await setting.publish((b"k", b"order"))
    async with setting.subscriber() as subscriber:
        [delivery] = await take(subscriber, 1)
        transaction = subscriber.transaction()
        transaction.ack(delivery)
        transaction.publish(b"good", topic="receipts", key=b"k")
        transaction.publish(data, topic=topic, key=key, partition=partition[0] if partition else None)
        with pytest.raises(error):
            await transaction.commit()
        assert [each.name for each in setting.broker.log.topics.all()] == ["t"]
        assert await delivery.ack() is Outcome.OK


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "subscription", "named", "error"),
    [
        ("nowhere", "s", {}, UnknownTopic),
        ("t", "nothing", {}, UnknownSubscription),
        ("t", "s", {"consumer": "c" * 300}, InvalidSubscription),
        ("t", "new", {"create": {"mode": "strange"}}, InvalidSubscription),
    ],
)
async def test_what_cannot_be_attached_to_is_told_to_whoever_iterates(
    setting, topic, subscription, named, error
):
    async with AsyncSubscriber(topic, subscription, address=setting.address, **named) as subscriber:
        with pytest.raises(error):
            await take(subscriber, 1)
        with pytest.raises(error):
            await subscriber.run(print)


@pytest.mark.parametrize(
    "named", [{}, {"mode": "key_shared"}, {"backoff_ms": "0ms"}, {"backoff_ms": 0, "ack_timeout_ms": "30s"}]
)
async def test_an_existing_subscription_with_the_settings_that_are_named_is_used(setting, named):
    for _ in range(2):
        async with setting.subscriber(create=named) as subscriber:
            await setting.publish((b"k", b"x"))
            [delivery] = await take(subscriber, 1)
            await delivery.ack()
    assert (await setting.state()).subscription.config["mode"] == "key_shared"


@pytest.mark.parametrize(
    ("named", "difference"),
    [
        ({"mode": "shared"}, "mode (wanted shared, existing key_shared)"),
        ({"mode": "key_shared", "backoff_ms": "2s"}, "backoff_ms (wanted 2000, existing 0)"),
        (
            {"attempts_max": 9, "key_window": 2},
            "attempts_max (wanted 9, existing 5), key_window (wanted 2, existing 1)",
        ),
        ({"dead_letter_topic": "dead"}, "dead_letter_topic (wanted dead, existing '')"),
    ],
)
async def test_an_existing_subscription_with_other_settings_is_refused_by_their_names(
    setting, named, difference
):
    """Deliveries would come by other rules than the call asks for, such as in another order."""
    await setting.publish((b"k", b"x"))
    async with setting.subscriber(create=named) as subscriber:
        with pytest.raises(
            SubscriptionDiffers, match=re.escape(f"exists with other settings: {difference}.")
        ):
            await take(subscriber, 1)
    assert (await setting.state()).backlog == 1


async def test_another_of_the_same_name_ends_it_with_the_reason(setting):
    async with setting.subscriber(consumer="me") as first:
        await until(lambda: _is_attached(setting))
        async with setting.subscriber(consumer="me") as second:
            with pytest.raises(SubscriptionReplaced):
                await take(first, 1)
            await setting.publish((b"k", b"x"))
            assert len(await take(second, 1)) == 1


async def test_a_subscriber_that_has_failed_leaves_all_brokers_and_asks_no_more(setting, monkeypatch):
    subscriber = setting.subscriber(consumer="me")
    aliases = {setting.address, setting.address.replace("127.0.0.1", "localhost")}
    looks = []

    async def owners():
        looks.append(True)
        return aliases

    monkeypatch.setattr(subscriber, "_owners", owners)
    async with subscriber:
        with pytest.raises(SubscriptionReplaced):
            await take(subscriber, 1)
        await until(lambda: _are_attached(setting, 0))
        await setting.publish((b"k", b"x"))
        async with setting.subscriber() as another:
            [delivery] = await take(another, 1)
            assert delivery.metadata.retry_count == 0
        assert subscriber._supervising.done()
        assert len(looks) < 10


async def test_an_exclusive_subscription_has_one_consumer(setting):
    await setting.broker.queues.create("t", "mine", {"mode": "exclusive"})
    mine = partial(AsyncSubscriber, "t", "mine", address=setting.address)
    await setting.publish((b"k", b"x"))
    async with mine() as first:
        await take(first, 1)
        async with mine() as second:
            with pytest.raises(SubscriptionBusy):
                await take(second, 1)


async def test_a_deleted_subscription_ends_its_subscribers(setting):
    async with setting.subscriber() as subscriber, setting.admin() as admin:
        await until(lambda: _is_attached(setting))
        await admin.delete_subscription("t", "s")
        with pytest.raises(UnknownSubscription):
            await take(subscriber, 1)


async def test_a_reset_subscription_goes_on_from_the_new_place(setting):
    await setting.publish((b"k", b"a"), (b"k", b"b"))
    async with setting.subscriber() as subscriber, setting.admin() as admin:
        for delivery in await take(subscriber, 1):
            await delivery.ack()
        await take(subscriber, 1)
        await admin.reset_subscription("t", "s", 1)
        [again] = await take(subscriber, 1)
        assert again.number == 1
        assert await again.ack() is Outcome.OK


# -- administration ----------------------------------------------------------------------------------------------------


async def test_subscriptions_are_administered(setting):
    await setting.publish((b"k", b"a"))
    async with setting.admin() as admin:
        made = await admin.create_subscription(
            "t", "new", {"attempts_max": 1, "on_exhausted": "block"}, read_from="latest"
        )
        assert (made.topic, made.name, made.config["attempts_max"]) == ("t", "new", "1")
        assert (await admin.alter_subscription("t", "new", {"ack_timeout_ms": "1m"})).config[
            "ack_timeout_ms"
        ] == "60000"
        assert [each.name for each in await admin.list_subscriptions("t")] == ["new", "s"]
        assert len(await admin.list_subscriptions()) == 2
        assert (await admin.describe_subscription("t", "new")).backlog == 0
        await admin.reset_subscription("t", "new", "earliest")
        assert (await admin.describe_subscription("t", "new")).backlog == 1
        async with AsyncSubscriber("t", "new", address=setting.address) as subscriber:
            [delivery] = await take(subscriber, 1)
            await delivery.nack()
            assert await admin.unblock("t", "new") == 1
            [delivery] = await take(subscriber, 1)
            await delivery.ack()
        assert await admin.redrive("t", "new") == 0
        await admin.delete_subscription("t", "new")
        with pytest.raises(UnknownSubscription):
            await admin.describe_subscription("t", "new")
        with pytest.raises(ValueError, match="middle"):
            await admin.create_subscription("t", "new", read_from="middle")
