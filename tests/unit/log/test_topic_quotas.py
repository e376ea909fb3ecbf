"""Topics that have stored what their quota allows."""

import asyncio

import pytest

from millpond.catalog.partitions import StoredTopic
from millpond.log import topic_quotas
from millpond.log.topic_quotas import FullTopics, TopicQuotas
from millpond.model.errors import StorageQuotaExceeded
from millpond.model.ids import AUDIT_TOPIC, TopicId
from millpond.model.principals import Principal
from millpond.model.quotas import PRODUCER_BYTE_RATE, STORED_BYTES, ClientQuota, QuotaEntity
from millpond.model.topics import Topic
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
    return {each.name for each in (EU, US, OTHER) if refusal(each, *quotas) is not None}


def refusal(stored, *quotas, topics=(EU, US, OTHER), exempt=()):
    found = FullTopics(exempt)
    found.replace(quotas, topics)
    try:
        found.check(Topic(stored.id, stored.name, 1, 0))
    except StorageQuotaExceeded as error:
        return str(error)
    return None


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
    assert refusal(EU, quota("orders-e*", 100)) == (
        "Topic 'orders-eu' accepts no messages: its quota 'orders-e*' allows 100 stored bytes, and there are 100. "
        "Delete records, shorten the retention, or raise the quota."
    )


def test_a_new_topic_is_full_if_a_full_prefix_covers_it():
    """Its bytes are not known yet. A quota of its own name cannot be reached."""
    new = StoredTopic(TopicId(bytes([9] * 16)), "orders-new", 0)
    assert refusal(new, quota("orders-*", 200)) is not None
    assert refusal(new, quota("*", 300)) is not None
    assert refusal(new, quota("orders-*", 201)) is None
    assert refusal(new._replace(name="orders-eu"), quota("orders-eu", 100)) is None


def test_a_topic_that_brokers_write_has_no_quota_and_counts_for_none():
    for id_ in (EU.id, TopicId(bytes([9] * 16))):
        audit = StoredTopic(id_, AUDIT_TOPIC, 1_000)
        quotas = [quota("*", 200), quota("__*", 1), quota(AUDIT_TOPIC, 1)]
        assert refusal(audit, *quotas, topics=[audit, US, OTHER], exempt=[AUDIT_TOPIC]) is None
    assert refusal(US, quota("*", 200), topics=[audit, US, OTHER], exempt=[AUDIT_TOPIC]) is not None
    assert refusal(US, quota("*", 201), topics=[audit, US, OTHER], exempt=[AUDIT_TOPIC]) is None


async def test_an_older_read_does_not_replace_a_newer_one():
    """The first read has its rows, and is held back until the second refresh has begun."""
    limits, hold, reads = [quota("*", 1)], asyncio.Event(), []

    async def read(_):
        reads.append(len(reads))
        if len(reads) == 1:
            await hold.wait()
        return [EU]

    quotas = TopicQuotas(lambda: limits)
    older = asyncio.ensure_future(quotas.refresh(read))
    await asyncio.sleep(0)
    limits = [quota("*", 1_000)]
    newer = asyncio.ensure_future(quotas.refresh(read))
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(older, newer)
    assert not quotas.full.by_id


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
        await broker.log.create_topic("orders-new", 1, {})
        with pytest.raises(StorageQuotaExceeded):
            await broker.produce("orders-new", b"v")
        await broker.security_administration.alter_quotas(access, [(entity, {STORED_BYTES: None})])
        await broker.topic_quotas.refresh(broker.log.read)
        await broker.produce("orders-us", b"v")
