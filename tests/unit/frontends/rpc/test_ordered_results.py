"""Results come out in the order of their requests, several at a time where several are ready."""

import asyncio

import pytest

from millpond.frontends.rpc.ordered_results import OrderedResults


@pytest.fixture
def futures():
    """Makes futures; those that a test leaves are ended."""
    made = []

    def make(count=1):
        loop = asyncio.get_running_loop()
        made.extend(new := [loop.create_future() for _ in range(count)])
        return new

    yield make
    for future in made:
        future.cancel()


async def soon():
    """Everything that can run has run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_results_keep_the_order_of_their_requests(futures):
    results, made = OrderedResults(10), futures(3)
    for future in made:
        await results.put(future)
    taking = asyncio.create_task(results.take(10))
    made[2].set_result("third")
    made[1].set_result("second")
    await soon()
    assert not taking.done()
    made[0].set_result("first")
    assert await taking == ["first", "second", "third"]


async def test_what_is_not_ready_waits_for_the_next_answer(futures):
    results, made = OrderedResults(10), futures(3)
    for future in made:
        await results.put(future)
    made[0].set_result(0)
    made[2].set_result(2)
    assert await results.take(10) == [0]
    made[1].set_result(1)
    assert await results.take(10) == [1, 2]


async def test_an_answer_carries_only_so_many(futures):
    results, made = OrderedResults(10), futures(5)
    for number, future in enumerate(made):
        future.set_result(number)
        await results.put(future)
    assert [await results.take(2) for _ in range(3)] == [[0, 1], [2, 3], [4]]


async def test_putting_waits_while_it_is_full(futures):
    results, made = OrderedResults(2), futures(3)
    await results.put(made[0])
    await results.put(made[1])
    third = asyncio.create_task(results.put(made[2]))
    await soon()
    assert not third.done()
    made[0].set_result(0)
    assert await results.take(10) == [0]
    await third


async def test_after_the_end_what_was_put_is_still_taken(futures):
    results, [future] = OrderedResults(2), futures()
    await results.put(future)
    results.end()
    future.set_result("last")
    assert await results.take(10) == ["last"]
    assert await results.take(10) == []


async def test_taking_from_an_empty_one_waits_for_a_put_or_the_end(futures):
    results, [future] = OrderedResults(2), futures()
    taking = asyncio.create_task(results.take(10))
    await soon()
    assert not taking.done()
    future.set_result(1)
    await results.put(future)
    assert await taking == [1]
    ending = asyncio.create_task(results.take(10))
    await soon()
    results.end()
    assert await ending == []
