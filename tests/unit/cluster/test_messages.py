"""Messages that one request sends to partitions of several brokers."""

import asyncio

from tests.unit.cluster.conftest import owned, two

from millpond.model.partitioning import partition_of
from millpond.records import Record
from millpond.security import OPEN_ACCESS


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
        answers.append(await first.messages.submit("t", records, access=OPEN_ACCESS))
    await asyncio.gather(*answers)
    found = [int(record.value) for record in await first.read("t", partition=mine)]
    assert found == list(range(60))
