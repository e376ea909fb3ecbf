"""Delivering: from the dispatcher's decision to the consumer, with reads that fail and consumers that leave."""

import pytest

from millpond.model.errors import NotOwner, StoreUnavailable
from millpond.model.subscriptions import SubscriptionMode
from millpond.queues import AckResult


async def read_all(made):
    while await made.read_ahead.read_more():
        pass


async def test_what_is_held_is_delivered_without_a_read(parts, attach):
    made = parts()
    listener, room = attach(made)
    made.feed.append(b"1", b"2")
    await read_all(made)
    reads = len(made.feed.reads)
    await made.deliverer.deliver_due(5)
    assert (listener.delivered, room.messages) == ([b"1", b"2"], 8)
    assert len(made.feed.reads) == reads
    assert not made.read_ahead.held
    assert made.read_ahead.delivered_at == 5


async def test_what_is_not_held_is_read_again(parts, attach):
    made = parts()
    listener, _ = attach(made)
    made.feed.append(b"1", b"2")
    await read_all(made)
    made.read_ahead.take(1)
    await made.deliverer.deliver_due(0)
    assert listener.delivered == [b"1", b"2"]


async def test_what_cannot_be_read_is_released_and_the_rest_is_delivered(parts, attach):
    made = parts()
    listener, room = attach(made)
    made.feed.append(b"1", b"2")
    await read_all(made)
    made.read_ahead.take(0)
    made.feed.refusal = StoreUnavailable(reason="away")
    with pytest.raises(StoreUnavailable):
        await made.deliverer.deliver_due(0)
    assert (listener.delivered, room.messages, listener.credit_returned) == ([b"2"], 9, 1)
    made.feed.refusal = None
    await made.deliverer.deliver_due(0)
    assert listener.delivered == [b"2", b"1"]


async def test_what_no_longer_exists_becomes_void(parts, attach):
    made = parts()
    listener, room = attach(made)
    made.feed.append(b"1", b"2")
    await read_all(made)
    made.read_ahead.take(0)
    made.feed.records[0] = None
    await made.deliverer.deliver_due(0)
    assert (listener.delivered, room.messages) == ([b"2"], 9)
    assert made.dispatcher.tracked == 1


async def test_a_nack_revokes_later_messages_of_its_key_at_once(parts, attach):
    made = parts(mode=SubscriptionMode.KEY_SHARED, key_window=4)
    listener, _ = attach(made)
    made.feed.append(b"1", b"2", key=b"k")
    await read_all(made)
    await made.deliverer.deliver_due(0)
    assert made.deliverer.nack(1, 0, 1, None) is AckResult.OK
    assert listener.revoked == [1]


async def test_consumers_hear_once_that_the_partition_is_lost(parts, attach):
    made = parts()
    listener, _ = attach(made)
    error = NotOwner()
    made.deliverer.close(error)
    made.deliverer.close(error)
    assert listener.lost == [(3, error)]
    assert made.deliverer.consumers == []


async def test_every_call_of_a_consumer_wakes_the_task(parts, attach):
    made = parts()
    attach(made)
    made.deliverer.mark_alive("anna")
    made.deliverer.pause("anna", paused=True)
    made.deliverer.detach("anna", graceful=True)
    assert made.woken == 4
    made.deliverer.detach("anna", graceful=True)
    assert made.woken == 4, "it had left already"


async def acquiring(parts, attach, *names, **config):
    """The parts, with consumers that ask for messages."""
    made = parts(**config)
    return made, {name: attach(made, name, credit=0)[1] for name in names}


async def test_who_acquires_gets_nothing_of_what_another_has_credit_for(parts, attach):
    made, granted = await acquiring(parts, attach, "anna", "bert")
    made.feed.append(b"1", b"2", b"3")
    await read_all(made)
    granted["bert"].add(5)
    acquired = made.deliverer.acquire("anna", 2, 1_000)
    assert [(each.offset, each.consumer) for each in acquired.deliveries] == [(0, "anna"), (1, "anna")]
    assert (made.dispatcher.leased, granted["bert"].messages, granted["anna"].messages) == (2, 5, 0)
    await made.deliverer.deliver_due(0)
    assert made.dispatcher.consumers.by_name["bert"].leases == {2}


async def test_what_is_gone_from_the_log_is_not_acquired(parts, attach):
    made, _ = await acquiring(parts, attach, "anna")
    made.feed.append(b"1", b"2", b"3")
    await read_all(made)
    made.feed.log_start, before = 2, made.woken
    acquired = made.deliverer.acquire("anna", 1, 1_000)
    assert [each.offset for each in acquired.deliveries] == [2]
    assert made.dispatcher.start == 2
    assert made.woken > before


async def test_what_is_acquired_wakes_the_task_for_those_who_wait(parts, attach):
    """It has an alarm to set for the leases, and growth to listen for."""
    made, _ = await acquiring(parts, attach, "anna", "bert")
    for name in ("anna", "bert"):
        made.deliverer.acquire(name, 5, 1_000)
    made.feed.append(b"1")
    await read_all(made)
    before = made.woken
    assert len(made.deliverer.acquire("anna", 5, 1_000).deliveries) == 1
    assert made.woken > before
    before = made.woken
    assert not made.deliverer.acquire("bert", 5, 1_000).deliveries
    assert made.woken == before, "it waits already"
