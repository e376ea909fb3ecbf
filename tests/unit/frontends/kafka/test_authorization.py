"""Every API, in every version: refused without the rights that it declares and without any effect, served with them."""

import dataclasses
from contextlib import AsyncExitStack
from itertools import product
from typing import ClassVar

import pytest
from tests.unit.frontends.kafka import authorization_cases as cases
from tests.unit.frontends.kafka.secured import SETTINGS, Cluster

from millpond.frontends.kafka.registry import HANDLERS, handles
from millpond.frontends.kafka.rights import Right
from millpond.model.acls import ResourceType
from millpond.protocol.messages.metadata import MetadataRequest
from millpond.security import Access
from millpond.testing import running_broker

REFUSALS = {29, 30, 31, 53}
NAMES = {
    ResourceType.TOPIC: f"{cases.TOPIC}*",
    ResourceType.GROUP: f"{cases.GROUP}*",
    ResourceType.TRANSACTIONAL_ID: f"{cases.TRANSACTION}*",
}
CHANGED_BY_REQUESTS = (
    *("topics", "partitions", "extents", "producers", "transactions", "txn_partitions", "txn_offsets"),
    *("groups", "group_members", "group_offsets", "scram_credentials", "acls", "quotas", "dynamic_configs"),
)


class RecordingAccess(Access):
    """Remembers which rights were asked for."""

    asked: ClassVar[set[Right]] = set()

    def allows(self, operation, resource, *name):
        self.asked.add(Right(operation, resource))
        return super().allows(operation, resource, *name)

    def allows_somewhere(self, operation, resource):
        self.asked.add(Right(operation, resource))
        return super().allows_somewhere(operation, resource)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as closing:
        yield closing


@pytest.fixture
async def client(stack):
    broker = await stack.enter_async_context(running_broker(kafka=True, **SETTINGS))
    cluster = Cluster(broker)
    broker.security.access = lambda identity, host: RecordingAccess(identity, host, broker.security)
    topic = await broker.log.create_topic(cases.TOPIC, 2, {})
    await broker.produce(cases.TOPIC, b"v")
    await cluster.user()
    client = await cluster.connected(stack)
    client.cluster, client.topic_id = cluster, topic.id
    RecordingAccess.asked = set()
    return client


def codes(message):
    """All error codes in a response."""
    if isinstance(message, list):
        return {code for each in message for code in codes(each)}
    if not dataclasses.is_dataclass(message):
        return set()
    found = {
        int(getattr(message, field.name))
        for field in dataclasses.fields(message)
        if field.name.endswith("error_code")
    }
    inner = (getattr(message, field.name) for field in dataclasses.fields(message))
    return found.union(*(codes(each) for each in inner))


async def stored(broker):
    def read(tx):
        return {name: sorted(map(repr, tx.rows(f"SELECT * FROM {name}"))) for name in CHANGED_BY_REQUESTS}

    return await broker.log.read(read)


async def refused_versions(client, case):
    """The versions in which the request is refused."""
    found = []
    for version in case.all_versions():
        response = await client.send(case.build(cases.Ids(client.topic_id, version)), version)
        is_refused = not listed(response, case.listed) if case.listed else bool(codes(response) & REFUSALS)
        if is_refused:
            found.append(version)
    return found


def listed(response, path):
    """The value of the field; see `Case.listed`."""
    for name in path.split("."):
        response = response[0] if isinstance(response, list) else response
        response = getattr(response, name)
    return response


async def prepare(client, case):
    """What a case needs: a group that can be listed, offsets that can be deleted, a group with a member or an open
    transaction that can be described, a share group with a position."""
    if case.name == "describe consumer groups":
        await client.cluster.grant(*HANDLERS[68].rights, names=NAMES)
        heartbeat = cases.consumer_heartbeat(cases.Ids(client.topic_id, 1), cases.CONSUMER_GROUP)
        assert codes(await client.send(heartbeat, 1)) == {0}
        RecordingAccess.asked = set()
    if case.name == "describe share groups":
        await client.cluster.grant(*HANDLERS[76].rights, names=NAMES)
        heartbeat = cases.share_heartbeat(cases.Ids(client.topic_id, 1), cases.SHARE_GROUP)
        assert codes(await client.send(heartbeat, 1)) == {0}
        RecordingAccess.asked = set()
    if case.name == "forget positions of a share group":
        await client.cluster.grant(*HANDLERS[91].rights, names=NAMES)
        move = cases.alter_share_offsets(cases.Ids(client.topic_id, 0))
        assert codes(await client.send(move, 0)) == {0}
        RecordingAccess.asked = set()
    if case.name == "share acknowledge":
        await client.cluster.grant(*HANDLERS[78].rights, names=NAMES)
        opened = await client.send(cases.share_fetch_of(cases.Ids(client.topic_id, 2)), 2)
        assert not codes(opened) & REFUSALS
        RecordingAccess.asked = set()
    if case.name in ("list transactions", "describe transactions"):
        await client.cluster.grant(*HANDLERS[24].rights, names=NAMES)
        ids = cases.Ids(client.topic_id, 0)
        begun = await client.send(cases.init_producer_id(ids.transaction), 0)
        add = cases.add_partitions(ids)
        add.v3_and_below_producer_id = begun.producer_id
        assert codes(await client.send(add, 0)) == {0}
        RecordingAccess.asked = set()
    if case.name in ("list groups", "offset delete"):
        await client.cluster.grant(*HANDLERS[8].rights, names=NAMES)
        commit = cases.offset_commit(cases.Ids(client.topic_id, 8))
        commit.group_id = cases.Ids(client.topic_id, 0).group
        assert codes(await client.send(commit, 8)) == {0}
        RecordingAccess.asked = set()


every_case = pytest.mark.parametrize("case", cases.CASES, ids=lambda case: case.name)


@every_case
async def test_without_any_rights_every_version_is_refused_without_effect(client, case):
    await prepare(client, case)
    await client.cluster.set_acls()
    before = await stored(client.cluster.broker)
    assert await refused_versions(client, case) == list(case.all_versions())
    assert await stored(client.cluster.broker) == before


@every_case
async def test_with_one_of_each_alternative_every_version_is_served(client, case):
    await prepare(client, case)
    for chosen in product(*case.needs):
        await client.cluster.grant(*chosen, names=NAMES)
        assert await refused_versions(client, case) == []
        await start_again(client.cluster.broker)


async def start_again(broker):
    """Removes the topic that a case may have created."""
    if broker.log.topics.knows(cases.NEW_TOPIC):
        await broker.log.delete_topic(cases.NEW_TOPIC)


@every_case
async def test_each_of_the_rights_is_needed(client, case):
    """A check that is removed from a handler is missed here."""
    await prepare(client, case)
    for left_out in case.needs:
        rest = [
            right for alternatives in case.needs if alternatives is not left_out for right in alternatives
        ]
        await client.cluster.grant(*rest, names=NAMES)
        assert await refused_versions(client, case) == list(case.all_versions())
        await start_again(client.cluster.broker)


@every_case
async def test_a_handler_asks_for_no_right_that_it_does_not_declare(client, case):
    await prepare(client, case)
    await client.cluster.grant(*(right for each in case.needs for right in each), names=NAMES)
    await refused_versions(client, case)
    assert RecordingAccess.asked <= set(HANDLERS[case.request.api_key].rights)
    assert RecordingAccess.asked


def test_every_api_has_a_case_for_each_right_that_it_declares():
    for key, handler in HANDLERS.items():
        needed = {
            right
            for case in cases.CASES
            if case.request.api_key == key
            for each in case.needs
            for right in each
        }
        assert needed == set(handler.rights), handler.request.__name__


def test_only_these_apis_need_no_right():
    assert {key for key, handler in HANDLERS.items() if not handler.rights} == {17, 18, 36, 60}
    assert all(HANDLERS[key].needs_none_because for key in (17, 18, 36, 60))


def test_a_handler_without_a_declaration_of_rights_cannot_be_registered():
    with pytest.raises(TypeError, match="rights"):
        handles(MetadataRequest)
    with pytest.raises(AssertionError, match="why it needs none"):
        handles(type("OtherRequest", (MetadataRequest,), {"api_key": 999}), rights=())(None)


def test_all_versions_of_an_api_have_a_case():
    for key, handler in HANDLERS.items():
        covered = {v for case in cases.CASES if case.request.api_key == key for v in case.all_versions()}
        versions = handler.request.versions
        if handler.rights and key != 19:
            assert covered == set(range(versions.first, versions.last + 1)), handler.request.__name__
