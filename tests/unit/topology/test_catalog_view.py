"""How a broker follows the catalog: what it reads, applies and announces, without a log."""

import asyncio

import pytest

from millpond.catalog import dynamic_configs, topology
from millpond.catalog import topics as catalog_topics
from millpond.catalog.open import open_database
from millpond.cluster import BrokerIdentity, join
from millpond.model.config_changes import setting
from millpond.model.dynamic_configs import GROUP, ConfigResource
from millpond.model.errors import TopicExists
from millpond.model.group_configs import SESSION_TIMEOUT
from millpond.model.ids import Session
from millpond.testing import SimulatedClock
from millpond.topology import (
    CatalogView,
    ChangesInFlight,
    DynamicConfigView,
    TopicChanges,
    TopicRegistry,
    TopologyView,
)

ME = Session("me")


class Owned:
    """The rows that a log would receive."""

    def __init__(self):
        self.rows = {}

    def seen(self):
        return {}

    def apply_all(self, rows, seen):
        self.rows = {row.topic_partition: row for row in rows}

    def apply(self, row):
        self.rows[row.topic_partition] = row

    def apply_compactions(self, marks):
        pass


class Peers:
    def __init__(self):
        self.notified = 0

    async def notify_all_and_wait(self):
        self.notified += 1


class Stage:
    """A catalog in memory, and what a broker knows of it."""

    def __init__(self, *, shares_catalog=True):
        self.database = open_database("memory://")
        self.database.migrate()
        clock = SimulatedClock()
        join(self.database, BrokerIdentity(ME, {}, "m", {}), lease_ms=1_000, clock=clock, sole_broker=True)
        self.view, self.topics, self.owned, self.peers = TopologyView(), TopicRegistry({}), Owned(), Peers()
        self.configs = DynamicConfigView()
        self.reads, self.after_read = 0, None
        self.catalog_view = CatalogView(
            self.read, ME, self.view, self.topics, self.owned, self.configs, shares_catalog=shares_catalog
        )
        self.in_flight = ChangesInFlight()
        self.changes = TopicChanges(
            self.write, self.catalog_view, self.topics, self.peers, self.in_flight, clock=clock
        )

    async def read(self, function):
        self.reads += 1
        with self.database.read() as tx:
            found = function(tx)
        if self.after_read is not None:
            await self.after_read()
        return found

    async def write(self, operation, *, own_commit=False):
        await asyncio.sleep(0)
        with self.database.write() as tx:
            return operation(tx)

    def create_elsewhere(self, name):
        with self.database.write() as tx:
            catalog_topics.create(tx, name, 1, {}, now_ms=1, owner=ME)


@pytest.fixture
def stage():
    made = Stage()
    yield made
    made.database.close()


async def test_a_refresh_applies_topics_owners_and_rows(stage):
    stage.create_elsewhere("t")
    await stage.catalog_view.refresh()
    topic_partition = stage.topics.partition("t", 0)
    assert stage.view.current.partitions[topic_partition].session == ME
    assert stage.owned.rows.keys() == {topic_partition}
    assert stage.view.current.members.keys() == {ME}


async def test_a_change_during_a_refresh_is_not_missed(stage):
    read, go_on = asyncio.Event(), asyncio.Event()

    async def wait():
        read.set()
        await go_on.wait()

    stage.after_read = wait
    stage.catalog_view.on_foreign_change()
    await read.wait()
    stage.create_elsewhere("foreign")
    stage.catalog_view.on_foreign_change()  # the first refresh has read, and has not yet applied what it read
    stage.after_read = None
    go_on.set()
    await stage.catalog_view._refreshing
    assert stage.topics.knows("foreign")


async def test_requests_during_a_refresh_share_the_next_one(stage):
    may_read = asyncio.Event()
    stage.after_read = may_read.wait
    first = asyncio.ensure_future(stage.catalog_view.refresh_on_request())
    while not stage.reads:
        await asyncio.sleep(0)
    stage.create_elsewhere("t")
    later = [asyncio.ensure_future(stage.catalog_view.refresh_on_request()) for _ in range(20)]
    await asyncio.sleep(0)
    may_read.set()
    await asyncio.gather(first, *later)
    assert (stage.reads, stage.topics.knows("t")) == (2, True)


async def test_callers_that_catch_up_share_a_read_and_refresh_only_after_a_change(stage):
    await stage.catalog_view.refresh()
    stage.reads = 0
    await asyncio.gather(*(stage.catalog_view.catch_up() for _ in range(20)))
    assert stage.reads == 1
    stage.create_elsewhere("t")
    await stage.catalog_view.catch_up()
    assert stage.topics.knows("t")


async def test_a_broker_that_shares_its_catalog_with_no_other_needs_not_catch_up():
    stage = Stage(shares_catalog=False)
    stage.create_elsewhere("t")
    await stage.catalog_view.catch_up()
    assert stage.reads == 0
    stage.database.close()


async def test_a_topic_is_known_here_when_its_creation_returns_and_others_are_told(stage):
    await stage.catalog_view.refresh()
    topic = await stage.changes.create("t", 3, {})
    assert (stage.topics.named("t"), stage.peers.notified) == (topic, 1)
    assert len(stage.view.current.partitions) == 3
    with stage.database.read() as tx:
        assert stage.view.current.version == topology.version(tx)
    await stage.changes.add_partitions("t", 4)
    await stage.changes.alter_config("t", setting({"retention.ms": "7"}))
    assert (stage.topics.named("t").partitions, stage.topics.config(topic.id).retention_ms) == (4, 7)
    await stage.changes.delete("t")
    assert not stage.topics.knows("t")
    assert not stage.view.current.partitions
    assert stage.peers.notified == 4


async def test_a_topic_that_another_broker_has_created_becomes_known_by_the_refusal(stage):
    stage.create_elsewhere("t")
    with pytest.raises(TopicExists):
        await stage.changes.create("t", 1, {})
    assert stage.topics.knows("t")


async def test_a_change_is_applied_although_its_caller_is_gone(stage):
    creating = asyncio.ensure_future(stage.changes.create("t", 1, {}))
    await asyncio.sleep(0)
    creating.cancel()
    await asyncio.wait([creating])
    await stage.in_flight.finish()
    assert creating.cancelled()
    assert stage.topics.knows("t")


def alter_elsewhere(stage, configs):
    with stage.database.write() as tx:
        dynamic_configs.alter(tx, ConfigResource(GROUP, "billing"), lambda _: configs)


async def test_a_refresh_applies_the_configs_of_groups_that_have_changed(stage):
    changes = []
    stage.configs.subscribe(lambda: changes.append(stage.configs.group_config("billing").session_timeout_ms))
    await stage.catalog_view.refresh()
    alter_elsewhere(stage, {SESSION_TIMEOUT: "50000"})
    await stage.catalog_view.refresh()
    await stage.catalog_view.refresh()
    alter_elsewhere(stage, {})
    await stage.catalog_view.refresh()
    assert changes == [45_000, 50_000, 45_000]
    assert stage.configs.group_config("other") == stage.configs.groups.default


async def test_own_changes_of_configs_are_reloaded_alone(stage):
    await stage.catalog_view.refresh()
    alter_elsewhere(stage, {SESSION_TIMEOUT: "50000"})
    stage.create_elsewhere("t")
    await stage.catalog_view.reload_configs()
    assert stage.configs.group_config("billing").session_timeout_ms == 50_000
    assert not stage.topics.knows("t")
