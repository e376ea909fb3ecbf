"""The order in which the parts of a broker are prepared for a handover, and end it."""

import asyncio

import pytest

from millpond.cluster.handover import prepared
from millpond.model.errors import Unavailable

UNITS = [1, 2]


class Part:
    def __init__(self, name, calls, prepare=None):
        self._name, self._calls, self._prepare = name, calls, prepare

    async def prepare_handover(self, units):
        self._calls.append(f"{self._name} prepares {units}")
        if self._prepare is not None:
            await self._prepare()

    def end_handover(self, units):
        self._calls.append(f"{self._name} ends {units}")


async def test_parts_are_prepared_in_order_and_end_in_reverse_order():
    calls = []
    async with prepared([Part("queues", calls), Part("log", calls)], UNITS, 10):
        calls.append("commit")
    assert calls == [
        "queues prepares [1, 2]",
        "log prepares [1, 2]",
        "commit",
        "log ends [1, 2]",
        "queues ends [1, 2]",
    ]


async def test_every_part_ends_a_handover_that_was_not_prepared_in_time():
    calls = []
    with pytest.raises(Unavailable, match=r"2 partitions still had work in flight after 0\.01 s"):
        async with prepared([Part("queues", calls, asyncio.Event().wait), Part("log", calls)], UNITS, 0.01):
            calls.append("commit")
    assert calls == ["queues prepares [1, 2]", "log ends [1, 2]", "queues ends [1, 2]"]


async def test_every_part_ends_a_handover_whose_commit_failed():
    calls = []
    with pytest.raises(ZeroDivisionError):
        async with prepared([Part("shards", calls), Part("groups", calls)], UNITS):
            raise ZeroDivisionError
    assert calls[2:] == ["groups ends [1, 2]", "shards ends [1, 2]"]


async def test_a_timeout_inside_a_part_is_its_own():
    async def time_out():
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        async with prepared([Part("groups", [], time_out)], UNITS):
            pass
