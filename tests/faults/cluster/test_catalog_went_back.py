"""A catalog that forgets what it has confirmed, as after a failover to a replica that lags (reliability test 12).

No broker that lives through it may acknowledge anything, or give an offset a second time; and it must be loud.
"""

import asyncio
import logging

import pytest
from tests.cluster.over_postgres import owned, shared_topic, until
from tests.faults.cluster.conftest import cluster

from millpond import Record
from millpond.model.errors import CatalogWentBack, MillpondError
from millpond.records import build_batch

FORGOTTEN = 5
LONG_MS = 60_000
"""A lease that lasts: the commits themselves must be refused, not only those who have lost it."""


def batch(value):
    return build_batch([Record(value)], now_ms=1)


def alarms(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.CRITICAL]


async def refusals(brokers, topic_partition, count):
    """What comes of appends by everybody; none may be acknowledged."""
    found = []
    for _ in range(count):
        for broker in brokers:
            with pytest.raises(MillpondError) as refused:
                await broker.log.append(topic_partition, batch(b"after"))
            found.append(type(refused.value).__name__)
    return found


@pytest.mark.parametrize("behind", ["their commits", "their joining"])
async def test_a_failover_to_a_replica_that_lags_halts_all_brokers(
    postgres, s3_store, figures, caplog, behind
):
    """The replica lacks the last commits; or it is so old that it does not even know the brokers: then they must not
    come back as new ones, with offsets they have given before."""
    database = postgres.new_database()
    url = postgres.url(database)
    if behind == "their joining":
        async with cluster([url], s3_store) as [first]:
            await first.log.create_topic("t", 2)
        await asyncio.to_thread(postgres.keep_copy)
    async with cluster([url, url], s3_store, lease=LONG_MS) as brokers:
        if behind == "their commits":
            await shared_topic(brokers, partitions=2)
            await brokers[0].log.append(owned(brokers[0])[0], batch(b"kept"))
            await asyncio.to_thread(postgres.keep_copy)
        await until(lambda: all(len(owned(each)) == 1 and each.lease.held for each in brokers))
        topic_partitions = [owned(broker)[0] for broker in brokers]
        for broker, topic_partition in zip(brokers, topic_partitions, strict=True):
            for number in range(FORGOTTEN):
                await broker.log.append(topic_partition, batch(b"forgotten %d" % number))
        await asyncio.to_thread(postgres.fail_over_to_copy)
        errors = [
            name
            for topic_partition in topic_partitions
            for name in await refusals(brokers, topic_partition, 20)
        ]
        causes = [await asyncio.wait_for(broker.failed(), 30) for broker in brokers]
        assert all(isinstance(cause, CatalogWentBack) for cause in causes), causes
        assert all(broker.lease.held for broker in brokers)
        assert "catalog failed; broker is shutting down" in alarms(caplog)
        ends = postgres.rows(database, "SELECT max(end_offset) FROM partitions")[0][0]
        assert ends == (1 if behind == "their commits" else 0), "an offset was given again"
        owners = {
            row[0] for row in postgres.rows(database, "SELECT session FROM writers WHERE dead_since IS NULL")
        }
        assert owners <= {broker.session for broker in brokers}, "somebody came back as new"
    figures.append(
        f"catalog back behind {behind}: {2 * FORGOTTEN} acknowledged appends forgotten, then {len(errors)} appends "
        f"refused ({', '.join(sorted(set(errors)))}), acknowledged 0, offsets given twice 0"
    )
