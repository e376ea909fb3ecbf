"""A catalog that has forgotten commits it had confirmed: nobody goes on from there before somebody has looked."""

import contextlib

from tests.unit.cluster.conftest import until

from millpond.catalog import writers
from millpond.model.errors import CatalogWentBack, MillpondError


def forget_a_commit(broker):
    """As a replica that was behind."""
    with broker.database.write() as tx:
        tx.rows("UPDATE writers SET commit_no = commit_no - 1 WHERE session = ?", (broker.session,))


def owners(broker):
    with broker.database.read() as tx:
        return {owner for (owner,) in tx.rows("SELECT owner FROM partitions")}


async def test_a_halted_partition_is_given_to_nobody(brokers):
    """Who gets it would know of nothing, and go on at the end that the catalog now has."""
    broker = await brokers.add()
    await broker.log.create_topic("t", 6)
    for number in range(6):
        await broker.produce("t", b"forgotten", partition=number)
    halted = {broker.log.topics.partition("t", number) for number in range(4)}
    with broker.database.write() as tx:
        tx.rows("UPDATE partitions SET end_offset = 0 WHERE partition < 4")
    await broker.log.refresh()
    other = await brokers.add()
    await until(lambda: len(other.log.partitions()) == 1)
    await until(lambda: broker.membership._balanced_version == broker.topology.current.version)
    assert halted < {partition.topic_partition for partition in broker.log.partitions()}


async def test_a_broker_that_ends_for_it_hands_nothing_over(brokers):
    other = await brokers.add(lease=600_000)
    broker = await brokers.add(lease=600_000)
    await broker.log.create_topic("t", 2)
    shares = owners(broker)
    assert shares == {broker.session, other.session}
    forget_a_commit(broker)
    with contextlib.suppress(MillpondError):
        await broker.log.write(lambda tx: None)
    assert isinstance(await broker.failed(), CatalogWentBack)
    await broker.stop()
    assert owners(other) == shares
    assert broker.session in {session for session, *_ in await other.log.read(writers.living)}
