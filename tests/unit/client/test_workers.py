"""When `run` ends before its subscriber is closed, deliveries that no handler has seen can be taken again, in order."""

import asyncio
import threading

import pytest
from tests.unit.client.deliveries import NoLink, delivery

from millpond.client.inbox import Inbox
from millpond.client.sync_queues import ThreadWorkers
from millpond.client.workers import AsyncWorkers

WAIT_S_MAX = 60


class Link(NoLink):
    def __init__(self):
        super().__init__()
        self.nacked = []

    def acknowledge(self, _, nacked, *rest):
        self.nacked.append(nacked.number)


def filled():
    link, inbox = Link(), Inbox(lambda _: None, lambda: 0.0)
    inbox.arrive(0, 1, [delivery(link, number) for number in (1, 2, 3)])
    return link, inbox


def left_in(inbox):
    found = []
    while (each := inbox.take()) is not None:
        found.append(each.number)
    return found


def test_a_thread_that_ends_run_leaves_the_others_to_be_taken():
    link, inbox = filled()
    others_wait = threading.Event()

    def leave(_):
        assert others_wait.wait(WAIT_S_MAX)
        raise SystemExit(3)

    workers = ThreadWorkers(inbox, 1, leave)
    add = workers._lanes.add

    def counted(each, order):
        number = add(each, order)
        if each.number == 3:
            others_wait.set()
        return number

    workers._lanes.add = counted
    with pytest.raises(SystemExit):
        workers.run()
    assert (link.nacked, left_in(inbox)) == ([1], [2, 3])


def test_a_run_that_is_over_looks_for_no_more_deliveries():
    _, inbox = filled()
    assert inbox.wait_for_unclaimed(lambda: True) is None
    assert left_in(inbox) == [1, 2, 3]


async def test_a_task_that_is_cancelled_leaves_the_others_to_be_taken():
    _, inbox = filled()
    begun = asyncio.Event()

    async def wait_forever(_):
        begun.set()
        await asyncio.Event().wait()

    workers = AsyncWorkers(inbox, 1, asyncio.Event().wait)
    running = asyncio.create_task(workers.run(wait_forever))
    await asyncio.wait_for(begun.wait(), WAIT_S_MAX)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert left_in(inbox) == [2, 3]
