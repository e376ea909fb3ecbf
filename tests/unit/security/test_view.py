"""The broker's view of users, tokens and ACLs, and the access that clients get by it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from millpond.catalog import security
from millpond.catalog.security import ApiToken, ScramCredential
from millpond.catalog.sqlite import SqliteMemoryDatabase
from millpond.model.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from millpond.model.errors import (
    AuthenticationFailed,
    ClusterNotAuthorized,
    GroupNotAuthorized,
    TopicNotAuthorized,
    TransactionalIdNotAuthorized,
)
from millpond.model.principals import BROKER, Principal
from millpond.security import OPEN_ACCESS, Identity, SecurityView
from millpond.security.identity import password_identity, token_identity
from millpond.security.view import CATCH_UP_S
from millpond.testing import SimulatedClock

ALICE = ScramCredential("alice", "SCRAM-SHA-256", b"salt", b"stored", b"server", 4096)
TOKEN = ApiToken("abc", b"digest", "User:alice", 2_000, 0, "User:admin")
READ_ORDERS = Acl(
    *(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*"),
    *(AclOperation.READ, Permission.ALLOW),
)
BY_CERTIFICATE = Identity(Principal("User", "alice"), "certificate")


class Stored:
    """A catalog in memory and a view of it."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.database = SqliteMemoryDatabase()
        self.database.migrate()
        self.clock = SimulatedClock(1_000)
        self.view = SecurityView(
            self.read, enabled=enabled, super_users=[Principal("User", "root")], clock=self.clock
        )

    async def read(self, function: Callable[[Any], Any], /) -> Any:
        with self.database.read() as tx:
            return function(tx)

    async def write(self, function: Callable[..., Any], *arguments: Any) -> None:
        with self.database.write() as tx:
            function(tx, *arguments)
        await self.view.refresh()


@pytest.fixture
async def stored():
    found = Stored()
    await found.view.refresh()
    yield found
    found.database.close()


async def test_an_access_follows_the_acls(stored):
    access = stored.view.access(BY_CERTIFICATE, "192.0.2.1")
    assert not access.allows(AclOperation.READ, ResourceType.TOPIC, "orders")
    await stored.write(security.put_acls, [READ_ORDERS])
    assert access.allows(AclOperation.READ, ResourceType.TOPIC, "orders")
    await stored.write(security.delete_acls, [AclFilter()])
    assert not access.allows(AclOperation.READ, ResourceType.TOPIC, "orders")


async def test_refusals_name_principal_operation_and_resource(stored):
    access = stored.view.access(BY_CERTIFICATE, "192.0.2.1")
    with pytest.raises(TopicNotAuthorized, match="User:alice may not write topic 'orders'"):
        access.require(AclOperation.WRITE, ResourceType.TOPIC, "orders")
    with pytest.raises(GroupNotAuthorized, match="User:alice may not read group 'g'"):
        access.require(AclOperation.READ, ResourceType.GROUP, "g")
    with pytest.raises(ClusterNotAuthorized, match="User:alice may not alter the configs of the cluster"):
        access.require(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
    with pytest.raises(TransactionalIdNotAuthorized, match="User:alice may not write transactional id 'x'"):
        access.require(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "x")


async def test_operations_are_those_that_the_resource_supports(stored):
    await stored.write(security.put_acls, [READ_ORDERS._replace(operation=AclOperation.ALL)])
    access = stored.view.access(BY_CERTIFICATE, "192.0.2.1")
    assert access.operations(ResourceType.TOPIC, "orders") == sum(
        1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11)
    )
    assert access.operations(ResourceType.TOPIC, "other") == 0
    assert access.operations(ResourceType.CLUSTER) == 0


async def test_a_super_user_needs_no_acl(stored):
    access = stored.view.access(Identity(Principal("User", "root"), "certificate"), "192.0.2.1")
    assert access.allows(AclOperation.ALTER, ResourceType.CLUSTER)


async def test_a_broker_may_only_act_on_the_cluster(stored):
    access = stored.view.access(Identity(Principal(BROKER, "3"), "broker"), "192.0.2.1")
    assert access.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    assert not access.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    assert not access.allows(AclOperation.READ, ResourceType.TOPIC, "orders")


async def test_a_changed_password_ends_access(stored):
    await stored.write(security.put_credentials, [ALICE])
    access = stored.view.access(
        password_identity(stored.view.scram_credential("alice", "SCRAM-SHA-256")), "192.0.2.1"
    )
    access.check_valid()
    await stored.write(security.put_credentials, [ALICE._replace(user="bob")])
    access.check_valid()
    await stored.write(security.put_credentials, [ALICE._replace(salt=b"other")])
    with pytest.raises(AuthenticationFailed):
        access.check_valid()


async def test_a_deleted_user_has_no_access(stored):
    await stored.write(security.put_credentials, [ALICE])
    identity = password_identity(stored.view.scram_credential("alice", "SCRAM-SHA-256"))
    await stored.write(security.delete_user, "alice")
    assert not stored.view.is_valid(identity)


async def test_a_token_ends_when_it_expires_or_is_deleted(stored):
    await stored.write(security.add_token, TOKEN)
    identity = token_identity(stored.view.token("abc"))
    assert stored.view.is_valid(identity)
    stored.clock.advance(1_000)
    assert not stored.view.is_valid(identity)
    lasting = identity._replace(expires_at_ms=None)
    assert stored.view.is_valid(lasting)
    await stored.write(security.delete_token, "abc")
    assert not stored.view.is_valid(lasting)


async def test_an_unchanged_version_is_not_loaded_again(stored, monkeypatch):
    loads = []
    monkeypatch.setattr(stored.view, "apply", loads.append)
    await stored.view.refresh()
    assert loads == []


async def test_without_security_every_client_may_do_everything():
    open_view = SecurityView(Stored().read, enabled=False, clock=SimulatedClock(0))
    assert open_view.access(BY_CERTIFICATE, "192.0.2.1") is OPEN_ACCESS
    assert OPEN_ACCESS.allows(AclOperation.ALTER, ResourceType.CLUSTER)
    OPEN_ACCESS.check_valid()


@pytest.mark.parametrize(
    ("spelled", "client"),
    [("2001:db8:0:0:0:0:0:5", "2001:db8::5"), ("::ffff:192.0.2.9", "192.0.2.9"), ("192.0.2.9", "192.0.2.9")],
)
async def test_a_denied_host_is_denied_however_it_is_spelled(stored, spelled, client):
    denied = READ_ORDERS._replace(host=spelled, permission=Permission.DENY)
    await stored.write(security.put_acls, [READ_ORDERS, denied])
    assert not stored.view.access(BY_CERTIFICATE, client).allows(
        AclOperation.READ, ResourceType.TOPIC, "orders"
    )
    assert stored.view.access(BY_CERTIFICATE, "192.0.2.1").allows(
        AclOperation.READ, ResourceType.TOPIC, "orders"
    )
    assert denied in stored.view.acls, "they are listed as they were created"


async def test_an_older_read_does_not_replace_a_newer_one(stored):
    older = await stored.read(security.read)
    await stored.write(security.put_acls, [READ_ORDERS])
    stored.view.apply(older)
    assert stored.view.acls == (READ_ORDERS,)


async def test_rights_of_clients_that_ask_for_nothing_are_not_computed(stored):
    stored.view.access(BY_CERTIFICATE, "192.0.2.1")
    assert not stored.view._rights


async def test_refused_clients_share_a_read_of_what_has_changed(stored):
    with stored.database.write() as tx:
        security.add_token(tx, TOKEN)
    reads = []

    async def read(function, /):
        reads.append(function)
        await asyncio.sleep(0)
        return await Stored.read(stored, function)

    stored.view._read = read
    await asyncio.gather(*(stored.view.catch_up() for _ in range(10)))
    assert stored.view.token(TOKEN.id) == TOKEN
    assert reads.count(security.version) <= 2, "one for all that came before it began"
    before = stored.view._caught_up_at
    await stored.view.catch_up()
    assert stored.view._caught_up_at - before > 0.9 * CATCH_UP_S


async def test_the_number_of_events_that_were_left_out_is_recorded_while_changes_are_followed(
    stored, monkeypatch
):
    monkeypatch.setattr("millpond.security.view.REFRESH_S", 0)
    reported = asyncio.Event()
    monkeypatch.setattr(stored.view.audit, "report_left_out", reported.set)
    following = asyncio.ensure_future(stored.view.run())
    await asyncio.wait_for(reported.wait(), 30)
    following.cancel()
