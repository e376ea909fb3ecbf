"""A catalog that forgot an append: the partition is halted, and the others go on."""

import asyncio
import logging

import pytest
from tests.cluster.over_postgres import cluster, owned

from millpond import Record
from millpond.catalog import appends
from millpond.catalog.appends import FOREIGN, AppendShare
from millpond.model.errors import PartitionHalted
from millpond.records import build_batch

LONG_MS = 60_000
"""A lease that lasts: the commits themselves must be refused, not only those who have lost it."""


def batch(value):
    return build_batch([Record(value)], now_ms=1)


def alarms(caplog):
    return [each for each in caplog.records if each.levelno >= logging.CRITICAL]


async def test_a_partition_whose_row_went_back_is_halted_and_the_others_go_on(databases, s3_store, caplog):
    """Only what others appended is forgotten: this broker's commits are all there, and only the end tells."""
    url = databases.new_url()
    async with cluster([url], s3_store, lease=LONG_MS) as [broker]:
        await broker.log.create_topic("t", 2)
        gone, kept = sorted(owned(broker))
        await broker.log.append(gone, batch(b"mine"))
        await broker.log.write(lambda tx: appends.encode_results(append_as_others_do(tx, gone)))
        await broker.log.refresh()
        assert broker.log.partition(gone).end_offset == 2
        await broker.log.write(forget_the_last)
        with pytest.raises(PartitionHalted) as halted:
            await insist_on_halt(broker, gone)
        assert not halted.value.retriable
        assert (await broker.log.append(kept, batch(b"elsewhere"))).base_offset == 0
        assert broker.metrics.log.halted._value.get() == 1
        [alarm] = alarms(caplog)
        assert alarm.message == "catalog went back in time; partition halted"
        assert (alarm.topic, alarm.partition) == ("t", gone.partition)
        with pytest.raises(PartitionHalted):
            broker.log.partition(gone)


def append_as_others_do(tx, topic_partition):
    share = AppendShare(topic_partition, FOREIGN, 0, 3, 1, 1, 1, inline=b"abc", sequences=())
    return appends.append(tx, [share], None, now_ms=1)


def forget_the_last(tx):
    tx.rows("UPDATE partitions SET end_offset = 1 WHERE partition = 0")
    tx.rows("DELETE FROM extents WHERE partition = 0 AND base_offset >= 1")


async def insist_on_halt(broker, topic_partition):
    """The refresh sees it within a second; an append before that is refused by its offset, and not acknowledged."""
    async with asyncio.timeout(20):
        while True:
            assert (await broker.log.append(topic_partition, batch(b"x"))) is None
