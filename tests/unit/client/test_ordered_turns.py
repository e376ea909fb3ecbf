"""Turns end in the order in which they were taken, whoever is quick, fails or gives up."""

import asyncio
import itertools

import pytest

from millpond.client.ordered_turns import OrderedTurns


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
async def test_whoever_is_ready_first_waits_for_those_before(order):
    turns, ready, done = OrderedTurns(), [asyncio.Event() for _ in order], []

    async def visit(number):
        with turns.take("here") as turn:
            await ready[number].wait()
            await turn.wait_turn()
            done.append(number)

    visits = [asyncio.ensure_future(visit(number)) for number in range(len(order))]
    for number in order:
        await asyncio.sleep(0)
        ready[number].set()
    await asyncio.gather(*visits)
    assert done == [0, 1, 2, 3]
    assert turns.is_free("here")


@pytest.mark.parametrize("is_ready", [False, True])
async def test_whoever_gives_up_lets_nobody_pass_those_before(is_ready, settle):
    turns, first, second, done = OrderedTurns(), asyncio.Event(), asyncio.Event(), []

    async def visit(name, ready):
        with turns.take("here") as turn:
            await ready.wait()
            await turn.wait_turn()
            done.append(name)

    ready = asyncio.Event()
    ready.set()
    visits = [
        asyncio.ensure_future(visit(name, each))
        for name, each in (("first", first), ("second", second), ("third", ready))
    ]
    if is_ready:
        second.set()
    await settle()
    visits[1].cancel()
    await settle()
    assert done == []
    first.set()
    await asyncio.gather(*visits, return_exceptions=True)
    assert done == ["first", "third"]
    assert len(turns) == 0


async def test_places_are_apart():
    turns = OrderedTurns()
    with turns.take("here"):
        assert turns.is_free("there")
        with turns.take("there") as turn:
            await turn.wait_turn()
    assert len(turns) == 0
