"""Users, API tokens, ACLs and quotas through the client library, against a broker with security on."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.unit.frontends.secured import ABSENT, TOPIC, secured_broker

from millpond import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer
from millpond.client import AclEntry, CreatedToken, QuotaDescription
from millpond.errors import (
    AuthenticationFailed,
    ClusterNotAuthorized,
    InvalidArgument,
    InvalidCredential,
    InvalidRequest,
    TopicNotAuthorized,
    UnknownToken,
    UnknownUser,
)
from millpond.testing import running_broker

READ = AclEntry("topic", TOPIC, "User:alice", "read")
WRITE = AclEntry("topic", "or", "User:alice", "write", pattern_type="prefixed")
DENY = AclEntry("topic", TOPIC, "User:bob", "all", host="192.0.2.1", permission="deny")
CLUSTER = AclEntry("cluster", "", "User:carol", "describe")
PASSWORD = "s3cret"


@pytest.fixture
async def secured():
    async with secured_broker(grpc=True) as running:
        yield running


@pytest.fixture
async def named(secured):
    """The arguments of a client of the super user."""
    token = (await secured.admin()).removeprefix("Bearer ")
    return {"address": secured.broker.listeners["grpc"], "token": token}


@pytest.fixture
async def admin(named):
    async with AsyncAdmin(**named) as admin:
        yield admin


# -- users -----------------------------------------------------------------------------------------------------------


async def test_a_user_is_created_gets_another_password_and_is_deleted(secured, admin):
    address = secured.broker.listeners["grpc"]
    assert await admin.list_users() == []
    await admin.set_password("alice", PASSWORD)
    [alice] = await admin.list_users()
    assert (alice.name, alice.mechanisms) == ("alice", {"SCRAM-SHA-256": 16384, "SCRAM-SHA-512": 16384})
    await admin.create_acls([READ])
    async with AsyncConsumer(TOPIC, address=address, username="alice", password=PASSWORD) as consumer:
        assert len((await consumer.poll()).messages) == 1
        await admin.set_password("alice", "another")
        with pytest.raises(AuthenticationFailed):
            await consumer.poll()
    async with AsyncConsumer(TOPIC, address=address, username="alice", password="another") as consumer:
        assert len((await consumer.poll()).messages) == 1
        await admin.delete_user("alice")
        with pytest.raises(AuthenticationFailed):
            await consumer.poll()
    assert await admin.list_users() == []
    with pytest.raises(UnknownUser, match="alice"):
        await admin.delete_user("alice")


async def test_a_name_that_no_user_can_have_is_refused_by_the_broker(admin):
    with pytest.raises(InvalidCredential, match="user name"):
        await admin.set_password("*", PASSWORD)


# -- tokens ----------------------------------------------------------------------------------------------------------


async def test_a_token_works_until_it_is_deleted(secured, admin):
    created = await admin.create_token("User:alice", description="nightly")
    await admin.create_acls([READ])
    stored = {each.id: each for each in await admin.list_tokens()}[created.id]
    assert (stored.principal, stored.created_by, stored.description) == (
        "User:alice",
        "User:admin",
        "nightly",
    )
    assert stored.expires_at_ms is None
    address = secured.broker.listeners["grpc"]
    async with AsyncConsumer(TOPIC, address=address, token=created.text) as consumer:
        assert len((await consumer.poll()).messages) == 1
        await admin.delete_token(created.id)
        with pytest.raises(AuthenticationFailed):
            await consumer.poll()
    with pytest.raises(UnknownToken, match=created.id):
        await admin.delete_token(created.id)


async def test_the_expiry_of_a_token_is_a_duration_or_a_time(secured, admin):
    before_ms = secured.broker.clock.now_ms()
    later = datetime.now(UTC) + timedelta(days=2)
    later_ms = int(later.timestamp() * 1000)
    made = [
        await admin.create_token("User:ci", **expiry)
        for expiry in ({"expires_in": 60}, {"expires_at": later}, {"expires_at": later_ms})
    ]
    stored = {each.id: each.expires_at_ms for each in await admin.list_tokens()}
    after_ms = secured.broker.clock.now_ms()
    assert before_ms + 60_000 <= stored[made[0].id] <= after_ms + 60_000
    assert stored[made[1].id] == stored[made[2].id] == later_ms
    with pytest.raises(InvalidArgument, match="expires_in=60: expected no expires_at beside it"):
        await admin.create_token("User:ci", expires_in=60, expires_at=later)
    with pytest.raises(InvalidCredential, match="expired already"):
        await admin.create_token("User:ci", expires_at=1)


def test_the_text_of_a_token_is_not_in_its_repr():
    assert repr(CreatedToken("abc", PASSWORD)) == "CreatedToken(id='abc')"


# -- ACLs ------------------------------------------------------------------------------------------------------------


async def test_acls_are_selected_by_their_values(admin):
    await admin.create_acls([READ, WRITE, DENY, CLUSTER])
    await admin.create_acls([READ])
    shown = AclEntry("cluster", "kafka-cluster", "User:carol", "describe")
    assert set(await admin.list_acls()) == {READ, WRITE, DENY, shown}
    for selection, expected in (
        ({"resource_type": "cluster"}, {shown}),
        ({"name": TOPIC}, {READ, DENY}),
        ({"name": TOPIC, "pattern_type": "match"}, {READ, WRITE, DENY}),
        ({"pattern_type": "prefixed"}, {WRITE}),
        ({"principal": "User:alice"}, {READ, WRITE}),
        ({"host": "192.0.2.1"}, {DENY}),
        ({"operation": "write"}, {WRITE}),
        ({"permission": "deny"}, {DENY}),
        ({"principal": "User:nobody"}, set()),
    ):
        assert set(await admin.list_acls(**selection)) == expected, selection


async def test_acls_are_deleted_by_their_values_but_not_all_at_once(admin):
    await admin.create_acls([READ, WRITE, DENY])
    with pytest.raises(InvalidRequest, match="all ACLs"):
        await admin.delete_acls()
    assert await admin.delete_acls(principal="User:alice", operation="write") == [WRITE]
    assert await admin.delete_acls(principal="User:alice", operation="write") == []
    assert set(await admin.list_acls()) == {READ, DENY}


async def test_an_acl_allows_what_it_names_and_nothing_else(secured, admin):
    text = (await admin.create_token("User:alice")).text
    address = secured.broker.listeners["grpc"]
    async with AsyncProducer(TOPIC, address=address, token=text) as producer:
        with pytest.raises(TopicNotAuthorized, match=f"User:alice may not .* topic '{TOPIC}'"):
            await producer.send(b"x")
        await admin.create_acls([WRITE])
        assert (await producer.send(b"x")).number == 2
        for topic in (TOPIC[1:], ABSENT):
            with pytest.raises(TopicNotAuthorized, match=topic):
                await producer.send(b"x", topic=topic)
        await admin.delete_acls(principal="User:alice")
        with pytest.raises(TopicNotAuthorized):
            await producer.send(b"x")


async def test_a_producer_that_may_only_read_learns_which_topic_it_may_not_write(secured, admin):
    await admin.create_acls([READ])
    text = (await admin.create_token("User:alice")).text
    async with AsyncProducer(TOPIC, address=secured.broker.listeners["grpc"], token=text) as producer:
        with pytest.raises(TopicNotAuthorized, match=f"User:alice may not write topic '{TOPIC}'") as refused:
            await producer.send(b"x")
    assert refused.value.facts["principal"] == "User:alice"


# -- who may -----------------------------------------------------------------------------------------------------------


async def test_only_administrators_may_list_and_change(secured):
    token = (await secured.user("DESCRIBE C")).removeprefix("Bearer ")
    async with AsyncAdmin(address=secured.broker.listeners["grpc"], token=token) as reader:
        assert await reader.list_users() == []
        for change in (
            reader.set_password("alice", PASSWORD),
            reader.delete_user("alice"),
            reader.create_token("User:alice"),
            reader.delete_token("abc"),
            reader.create_acls([READ]),
            reader.delete_acls(principal="User:alice"),
        ):
            with pytest.raises(ClusterNotAuthorized):
                await change


async def test_a_broker_without_security_says_so():
    async with (
        running_broker(grpc=True) as broker,
        AsyncAdmin(address=broker.listeners["grpc"]) as admin,
    ):
        for call in (admin.list_users(), admin.list_acls(), admin.create_token("User:alice")):
            with pytest.raises(InvalidRequest, match="security is off"):
                await call


async def test_the_same_without_an_event_loop(named):
    await asyncio.to_thread(_use_sync_client, named)


def _use_sync_client(named):
    with Admin(**named) as admin:
        admin.set_password("alice", PASSWORD)
        assert [each.name for each in admin.list_users()] == ["alice"]
        created = admin.create_token("User:alice", expires_in=60, description="d")
        [stored] = [each for each in admin.list_tokens() if each.id == created.id]
        assert (stored.description, stored.expires_at_ms is None) == ("d", False)
        admin.create_acls([READ, WRITE])
        assert admin.list_acls(operation="read") == [READ]
        assert admin.delete_acls(operation="read") == [READ]
        assert admin.list_acls() == [WRITE]
        admin.delete_token(created.id)
        admin.delete_user("alice")
        assert admin.list_users() == []


# -- quotas ----------------------------------------------------------------------------------------------------------


async def test_quotas_are_altered_and_listed(admin):
    quotas = {"producer_byte_rate": 1_000, "request_percentage": 2.5}
    await admin.alter_quotas(quotas, user="alice", client_id="", validate_only=True)
    assert await admin.list_quotas() == []
    await admin.alter_quotas(quotas, user="alice", client_id="")
    assert await admin.list_quotas() == [QuotaDescription("alice", "", None, None, quotas)]
    await admin.alter_quotas(dict.fromkeys(quotas), user="alice", client_id="")
    assert await admin.list_quotas() == []
    await admin.alter_quotas({"stored_bytes": 5}, topic="orders-*")
    assert await admin.list_quotas() == [QuotaDescription(None, None, None, "orders-*", {"stored_bytes": 5})]
    await admin.alter_quotas({"stored_bytes": None}, topic="orders-*")
    with pytest.raises(InvalidRequest, match="needs a user, a client id"):
        await admin.alter_quotas(quotas)
