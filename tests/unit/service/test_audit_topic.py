"""The topic `__audit`: what it holds, who may use it, and that it never holds up a request."""

import ast
import asyncio
import json
from pathlib import Path

import pytest

import millpond
from millpond.broker import Broker
from millpond.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from millpond.model.errors import InvalidSettings, StoreUnavailable, TopicNotAuthorized
from millpond.model.ids import AUDIT_TOPIC
from millpond.model.principals import Principal
from millpond.model.quotas import QuotaEntity
from millpond.security import OPEN_ACCESS, Identity
from millpond.security.audit import DENIED, EVENTS, AuditEvent
from millpond.service import AuditTopic
from millpond.service.audit_topic import BATCH_BYTES_MAX, TEXT_BYTES_MAX
from millpond.settings import Settings, load
from millpond.testing import SimulatedClock, running_broker

ADMIN, ALICE = (Principal("User", name) for name in ("admin", "alice"))
SOURCE = Path(millpond.__file__).parent


@pytest.fixture
async def broker():
    async with running_broker(
        clock=SimulatedClock(),
        security=True,
        super_users=(ADMIN,),
        audit_topic=True,
        audit_retention=86_400_000,
    ) as running:
        yield running


def access(broker, principal=ADMIN):
    return broker.security.access(Identity(principal, "test"), "192.0.2.1")


async def events(broker, count):
    """Waits for this many. The topic is written in the background."""
    found = []
    async with asyncio.timeout(60):
        while len(found) < count:
            records = await broker.read(AUDIT_TOPIC, len(found), wait_ms=30_000)
            found += [json.loads(record.value) for record in records]
    return found


async def test_changes_of_topics_brokers_and_rights_are_in_the_topic(broker):
    admin, service = access(broker), broker.security_administration
    await broker.administration.create_topic("orders", 1, {}, access=admin)
    await broker.administration.alter_topic("orders", count=2, changes={"retention.ms": "1"}, access=admin)
    await broker.administration.delete_records("orders", 0, 0, access=admin)
    await broker.messages.topic("implicit", admin)
    await broker.administration.delete_topic("orders", access=admin)
    await broker.cluster.rebalance(access=admin)
    await service.alter_quotas(admin, [(QuotaEntity("alice", None), {"producer_byte_rate": 1000.0})])
    broker.security.audit.certificate_refused(broker.node_id, "server.pem", "it has expired")
    found = await events(broker, 9)
    assert [(each["event"], each["resource"]) for each in found] == [
        ("topic created", "orders"),
        ("partitions added", "orders: 2"),
        ("configs changed", "orders: retention.ms"),
        ("records deleted", "orders/0 below 0"),
        ("topic created", "implicit"),
        ("topic deleted", "orders"),
        ("rebalance requested", "cluster"),
        ("quota changed", found[7]["resource"]),
        ("certificate refused", "server.pem"),
    ]
    assert "alice" in found[7]["resource"]
    assert {name: found[0][name] for name in ("principal", "address", "outcome", "broker")} == {
        "principal": "User:admin",
        "address": "192.0.2.1",
        "outcome": "success",
        "broker": broker.node_id,
    }
    assert found[0]["time"].endswith("Z")
    assert (found[8]["principal"], found[8]["outcome"]) == (f"Broker:{broker.node_id}", "failure")
    assert found[8]["reason"] == "it has expired"


async def test_clients_may_read_it_and_nothing_else(broker):
    everything = Acl(
        *(ResourceType.TOPIC, PatternType.LITERAL, "*", str(ALICE), "*", AclOperation.ALL, Permission.ALLOW)
    )
    await broker.security_administration.create_acls(access(broker), [everything])
    reading = {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS}
    for client in (access(broker), access(broker, ALICE)):
        allowed = {each for each in AclOperation if client.allows(each, ResourceType.TOPIC, AUDIT_TOPIC)}
        assert allowed == reading
        assert client.allows(AclOperation.WRITE, ResourceType.TOPIC, "orders")
        with pytest.raises(TopicNotAuthorized):
            client.require(AclOperation.WRITE, ResourceType.TOPIC, AUDIT_TOPIC)
    assert not access(broker, Principal("User", "bob")).allows(
        AclOperation.READ, ResourceType.TOPIC, AUDIT_TOPIC
    )


async def test_a_denial_says_which_right_was_missing(broker):
    with pytest.raises(TopicNotAuthorized):
        access(broker, ALICE).require(AclOperation.READ, ResourceType.TOPIC, "orders")
    [event] = await events(broker, 1)
    assert (event["event"], event["outcome"], event["resource"]) == ("access denied", DENIED, "topic orders")
    assert event["reason"] == "User:alice may not read topic 'orders'."


async def test_the_broker_creates_it_and_sets_its_retention(broker):
    topic = broker.log.topics.named(AUDIT_TOPIC)
    assert topic.overrides == {
        "cleanup.policy": "delete",
        "retention.ms": "86400000",
        "max.message.bytes": str(BATCH_BYTES_MAX),
    }
    other = AuditTopic(broker.log, node_id=1, retention_ms=-1, metrics=broker.metrics.security)
    await other.open()
    assert broker.log.topics.named(AUDIT_TOPIC).overrides["retention.ms"] == "-1"


class FailingLog:
    """A log whose catalog is away until `works` is set."""

    def __init__(self, log):
        self._log = log
        self.works = False

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append_jointly(self, appends, operation):
        if not self.works:
            raise StoreUnavailable(reason="away")
        return await self._log.append_jointly(appends, operation)


async def test_a_full_queue_drops_events_and_says_how_many(broker):
    log = FailingLog(broker.log)
    topic = AuditTopic(log, node_id=7, retention_ms=-1, metrics=broker.metrics.security, queued_max=3)
    for number in range(5):
        topic.add(AuditEvent(number, "topic created", "User:a", "", f"t{number}", "success"))
    await topic.close()  # it fails, and the events stay
    log.works = True
    await topic.close()
    found = await events(broker, 4)
    assert [(each["event"], each["resource"]) for each in found] == [
        *(("topic created", f"t{number}") for number in range(3)),
        ("audit events dropped", "2"),
    ]
    assert b"millpond_audit_dropped_total 2.0" in broker.metrics.expose()


def topic_created(number, name, time_ms=0):
    return AuditEvent(number + time_ms, "topic created", "User:a", "", name, "success", {"reason": name})


async def test_batches_and_values_are_cut_by_their_encoded_size():
    """Each of these characters has 12 bytes, and the default of the broker is too small for the batches."""
    clock, settings = SimulatedClock(), {"security": True, "super_users": (ADMIN,), "audit_topic": True}
    async with running_broker(clock=clock, max_message_bytes=2_000, **settings) as broker:
        topic = broker.parts.audit_topic
        for number in range(300):
            topic.add(topic_created(number, f"{number} {'😀' * 5_000}", clock.now_ms()))
        await topic.close()
        found = await events(broker, 300)
        assert b"millpond_audit_dropped_total 0.0" in broker.metrics.expose()
    assert [int(each["resource"].split()[0]) for each in found] == list(range(300))
    for each in found:
        sizes = {name: len(json.dumps(each[name])) - 2 for name in ("resource", "reason")}
        assert all(TEXT_BYTES_MAX - 12 < size <= TEXT_BYTES_MAX for size in sizes.values()), sizes


async def test_an_event_that_is_refused_is_dropped_and_the_others_are_written(broker, caplog):
    """An hour is what a message may be in the future."""
    topic, now = broker.parts.audit_topic, broker.parts.clock.now_ms()
    for number, ahead_ms in enumerate((0, 86_400_000, 0, 0)):
        topic.add(topic_created(number, f"t{number}", now + ahead_ms))
    await topic.close()
    found = await events(broker, 4)
    assert sorted(each["resource"] for each in found) == ["1", "t0", "t2", "t3"]
    assert [each["event"] for each in found if each["resource"] == "1"] == ["audit events dropped"]
    assert b"millpond_audit_dropped_total 1.0" in broker.metrics.expose()
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [
        "audit event refused; left out of the topic"
    ]


async def test_no_quota_of_topics_silences_it(broker):
    entity = QuotaEntity(None, None, topic="*")
    await broker.security_administration.alter_quotas(access(broker), [(entity, {"stored_bytes": 1})])
    await events(broker, 1)
    await broker.topic_quotas.refresh(broker.log.read)
    await broker.administration.create_topic("orders", 1, {}, access=access(broker))
    await broker.parts.audit_topic.close()
    written = [json.loads(each.value)["event"] for each in await broker.read(AUDIT_TOPIC)]
    assert written == ["quota changed", "topic created"]


async def test_records_of_a_topic_that_is_deleted_meanwhile_are_deleted_successfully(broker, monkeypatch):
    await broker.administration.create_topic("orders", 1, {}, access=access(broker))
    delete_records = broker.log.delete_records

    async def delete_records_first(topic_partition, before_offset):
        log_start = await delete_records(topic_partition, before_offset)
        await broker.log.delete_topic("orders")
        return log_start

    monkeypatch.setattr(broker.log, "delete_records", delete_records_first)
    assert await broker.administration.delete_records("orders", 0, 0, access=access(broker)) == 0
    assert [each["resource"] for each in await events(broker, 2)] == ["orders", "orders/0 below 0"]


async def test_events_outlive_the_broker():
    clock, settings = SimulatedClock(), {"security": True, "super_users": (ADMIN,), "audit_topic": True}
    async with running_broker(clock=clock, **settings) as broker:
        await broker.administration.create_topic("late", 1, {}, access=access(broker))
        await broker.parts.audit_topic.close()  # what a stop does before the log stops
        assert (await events(broker, 1))[0]["resource"] == "late"
        assert len(await broker.read(AUDIT_TOPIC)) == 1, "written once, and nothing about the topic itself"


async def test_it_needs_security():
    with pytest.raises(InvalidSettings, match="audit_topic"):
        async with running_broker(audit_topic=True):
            pass


async def test_without_security_changes_are_not_recorded(caplog):
    caplog.set_level("INFO", logger="millpond.security.audit")
    async with running_broker() as broker:
        await broker.administration.create_topic("t", 1, {}, access=OPEN_ACCESS)
    assert not caplog.records


def test_every_event_that_the_source_records_is_documented():
    found = set()
    for text in filter(lambda text: "audit" in text, (path.read_text() for path in SOURCE.rglob("*.py"))):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _name_of(node.func) in ("changed", "_record"):
                found |= {
                    part.value
                    for argument in node.args[:3]
                    for part in ast.walk(argument)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                    if " " in part.value.strip() and part.value == part.value.strip()
                }
    named = {"client authenticated", "authentication failed", "access denied", "insecure listener"}
    assert found | named | {"audit events dropped"} == set(EVENTS)


def _name_of(function):
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_topics_are_changed_through_the_audit_log_only():
    allowed = {"service/audited_topic_changes.py", "service/audit_topic.py"}
    changes = ("create_topic", "add_partitions", "alter_config", "delete_topic")
    found = {
        str(path.relative_to(SOURCE))
        for folder in ("service", "frontends", "queues", "groups", "maintenance", "cluster")
        for path in (SOURCE / folder).rglob("*.py")
        if any(f"log.{each}(" in path.read_text() for each in changes)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _name_of(node.func) in changes
        if isinstance(node.func.value, ast.Attribute) and node.func.value.attr in ("log", "_log")
    }
    assert found == allowed


def test_the_listeners_that_only_insecure_allows():
    open_ = Settings(kafka_listen="192.0.2.1:1", grpc_listen="127.0.0.1:2", http_listen="", insecure=True)
    assert open_.insecure_listeners() == ["192.0.2.1:1"]
    assert Settings().insecure_listeners() == []
    assert Settings(kafka_listen="192.0.2.1:1", security=True, tls="on").insecure_listeners() == []


async def test_insecure_is_logged_audited_and_measured(caplog):
    """`127.1` is this machine, in a form that the settings do not take for loopback."""
    async with Broker(
        Settings(
            catalog="memory://",
            storage="memory://",
            kafka_listen="",
            grpc_listen="",
            http_listen="127.1:0",
            security=True,
            insecure=True,
            audit_topic=True,
            disk_reserve=0,
        ),
        listen=True,
    ) as broker:
        [event] = await events(broker, 1)
        assert b"millpond_insecure 1.0" in broker.metrics.expose()
    assert (event["event"], event["resource"]) == ("insecure listener", "127.1:0")
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len([each for each in warnings if "because insecure is set" in each.message]) == 1


def test_the_refusal_says_both_ways_out():
    for settings in ({}, {"security": "on"}):
        with pytest.raises(InvalidSettings) as refused:
            load({"kafka_listen": "broker.example:9092", **settings}, {}).address("kafka")
        assert "`millpond serve --insecure`" in str(refused.value)
        assert ("security init" in str(refused.value)) is (settings == {})
