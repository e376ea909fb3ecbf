"""Saving: what belongs to one save, and which callers wait for it."""

import pytest

from millpond.model.errors import NotOwner


async def deliver(made, *values):
    made.feed.append(*values)
    while await made.read_ahead.read_more():
        pass
    await made.deliverer.deliver_due(0)


async def test_without_changes_nothing_is_saved(parts):
    made = parts()
    assert made.saves.when_saved().done()
    assert not made.saves.has_unsaved
    assert await made.saves.begin() is None
    assert (made.dirty, made.woken) == (0, 0)


async def test_a_caller_waits_until_its_changes_are_durable(parts, attach):
    made = parts()
    attach(made)
    await deliver(made, b"1", b"2")
    made.dispatcher.ack(0, 1, 1)
    first = made.saves.when_saved()
    assert made.dirty == 1
    save = await made.saves.begin()
    assert (save.floor, save.epoch, save.state_key.partition) == (1, 1, 3)
    made.dispatcher.ack(1, 1, 2)
    second = made.saves.when_saved()
    assert await made.saves.begin() is save, "until it is saved"
    made.saves.end()
    assert (first.done(), second.done(), made.saves.has_unsaved) == (True, False, True)
    assert (await made.saves.begin()).floor == 2
    made.saves.end()
    assert second.done()
    assert not made.saves.has_unsaved


async def test_callers_that_wait_when_it_closes_receive_the_error(parts, attach):
    made = parts()
    attach(made)
    await deliver(made, b"1", b"2")
    made.dispatcher.ack(0, 1, 1)
    waiting = made.saves.when_saved()
    made.saves.close(NotOwner())
    for future in (waiting, made.saves.when_saved()):
        with pytest.raises(NotOwner):
            await future
    assert await made.saves.begin() is None
    assert not made.saves.needs_letters


async def test_a_dead_letter_is_read_and_saved_with_its_message(parts, attach):
    made = parts(attempts_max=1)
    attach(made)
    await deliver(made, b"1")
    made.deliverer.nack(1, 0, 1, None)
    assert made.saves.needs_letters
    save = await made.saves.begin()
    [letter] = save.dead
    assert (letter.offset, letter.target) == (0, "orders.billing.dead")
    assert not made.saves.needs_letters, "they are read"
