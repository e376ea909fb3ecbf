"""Topics that have stored what their quota allows."""

import pytest

from millpond.catalog.partitions import StoredTopic
from millpond.log import topic_quotas
from millpond.log.topic_quotas import TopicQuotas, full_topics
from millpond.model.errors import StorageQuotaExceeded
from millpond.model.ids import TopicId
from millpond.model.principals import Principal
from millpond.model.quotas import PRODUCER_BYTE_RATE, STORED_BYTES, ClientQuota, QuotaEntity
from millpond.security import Identity
from millpond.testing import running_broker

EU, US, OTHER = (
    StoredTopic(TopicId(bytes([number] * 16)), name, 100)
    for number, name in enumerate(("orders-eu", "orders-us", "other"))
)
ADMIN = Principal("User", "admin")
LATER_S = 86_400


def quota(topic, limit):
    return ClientQuota(QuotaEntity(None, None, topic=topic), STORED_BYTES, float(limit))


def full(*quotas):
    return {each.facts["topic"] for each in full_topics(quotas, [EU, US, OTHER]).values()}


def test_a_topic_is_full_when_its_bytes_reach_the_quota():
    assert full(quota("orders-eu", 101)) == set()
    assert full(quota("orders-eu", 100)) == {"orders-eu"}


def test_topics_with_a_prefix_are_counted_together():
    assert full(quota("orders-*", 201)) == set()
    assert full(quota("orders-*", 200)) == {"orders-eu", "orders-us"}
    assert full(quota("*", 300)) == {"orders-eu", "orders-us", "other"}


def test_every_quota_that_covers_a_topic_applies():
    assert full(quota("orders-*", 1_000), quota("orders-us", 50)) == {"orders-us"}


def test_a_quota_of_topics_that_do_not_exist_is_never_reached():
    assert full(quota("absent", 1)) == set()


def test_the_error_says_what_to_do():
    [error] = full_topics([quota("orders-e*", 100)], [EU, US]).values()
    assert str(error) == (
        "Topic 'orders-eu' accepts no messages: its quota 'orders-e*' allows 100 stored bytes, and there are 100. "
        "Delete records, shorten the retention, or raise the quota."
    )


async def test_without_such_quotas_nothing_is_read():
    async def read(function):
        raise AssertionError("nothing to read")

    client = ClientQuota(QuotaEntity("alice", None), PRODUCER_BYTE_RATE, 1.0)
    await TopicQuotas(lambda: [client]).refresh(read)


async def test_a_full_topic_accepts_no_messages_until_records_are_deleted(monkeypatch):
    monkeypatch.setattr(topic_quotas, "REFRESH_S", LATER_S)  # only the test refreshes them
    async with running_broker(security=True, super_users=(ADMIN,)) as broker:
        access = broker.security.access(Identity(ADMIN, "test"), "127.0.0.1")
        for name in ("orders-eu", "orders-us", "other"):
            await broker.log.create_topic(name, 1, {})
        await broker.produce("orders-eu", b"v" * 1_000)
        entity = QuotaEntity(None, None, topic="orders-*")
        await broker.security_administration.alter_quotas(access, [(entity, {STORED_BYTES: 1_000})])
        await broker.topic_quotas.refresh(broker.log.read)
        for name in ("orders-eu", "orders-us"):
            with pytest.raises(StorageQuotaExceeded):
                await broker.produce(name, b"v")
        await broker.produce("other", b"v")
        await broker.security_administration.alter_quotas(access, [(entity, {STORED_BYTES: None})])
        await broker.topic_quotas.refresh(broker.log.read)
        await broker.produce("orders-us", b"v")
