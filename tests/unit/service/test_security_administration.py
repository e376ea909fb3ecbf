"""Who may change users, tokens and ACLs, and that a change is in effect when the call returns."""

import pytest

from millpond.model.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from millpond.model.errors import (
    AuthenticationFailed,
    ClusterNotAuthorized,
    InvalidCredential,
    InvalidRequest,
    UnknownToken,
    UnknownUser,
)
from millpond.model.principals import Principal
from millpond.security import OPEN_ACCESS, Identity
from millpond.service import SecurityAdministration, UserMechanism
from millpond.testing import SimulatedClock, running_broker

ADMIN, ALICE, BOB = (Principal("User", name) for name in ("admin", "alice", "bob"))
ALTER = Acl(
    ResourceType.CLUSTER,
    PatternType.LITERAL,
    "kafka-cluster",
    str(ALICE),
    "*",
    AclOperation.ALTER,
    Permission.ALLOW,
)
DESCRIBE = ALTER._replace(operation=AclOperation.DESCRIBE)
ITERATIONS = 4096


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
async def broker(clock):
    async with running_broker(clock=clock, security=True, super_users=(ADMIN,)) as running:
        yield running


@pytest.fixture
def administration(broker, clock):
    return SecurityAdministration(broker.log.write, broker.security, clock=clock, iterations=ITERATIONS)


@pytest.fixture
def access(broker):
    return lambda principal: broker.security.access(Identity(principal, "test"), "127.0.0.1")


@pytest.fixture
async def delegate(administration, access):
    """A user that may change the cluster, and is not a super user."""
    await administration.create_acls(access(ADMIN), [ALTER])
    return access(ALICE)


def calls(administration, access):
    """Everything that changes or shows something, by the operation on the cluster that it needs."""
    return {
        AclOperation.DESCRIBE: [
            lambda: administration.list_acls(access, AclFilter()),
            lambda: administration.list_credentials(access),
            lambda: administration.list_tokens(access),
        ],
        AclOperation.ALTER: [
            lambda: administration.create_acls(access, [DESCRIBE]),
            lambda: administration.delete_acls(access, [AclFilter()]),
            lambda: administration.set_password(access, "bob", "secret"),
            lambda: administration.delete_user(access, "bob"),
            lambda: administration.alter_credentials(access, [], [("bob", "SCRAM-SHA-256")]),
            lambda: administration.create_token(access, str(BOB)),
            lambda: administration.delete_token(access, "abc"),
        ],
    }


async def run(call):
    result = call()
    return await result if hasattr(result, "__await__") else result


async def test_without_rights_every_call_is_refused_without_effect(administration, access, broker):
    version = broker.security.version
    for each in (call for group in calls(administration, access(BOB)).values() for call in group):
        with pytest.raises(ClusterNotAuthorized):
            await run(each)
    await broker.security.refresh()
    assert broker.security.version == version


async def test_describing_does_not_allow_changing(administration, access):
    await administration.create_acls(access(ADMIN), [DESCRIBE])
    found = calls(administration, access(ALICE))
    for call in found[AclOperation.DESCRIBE]:
        await run(call)
    for call in found[AclOperation.ALTER]:
        with pytest.raises(ClusterNotAuthorized):
            await run(call)


async def test_while_security_is_off_nothing_can_be_prepared():
    async with running_broker() as broker:
        for each in (
            call for group in calls(broker.security_administration, OPEN_ACCESS).values() for call in group
        ):
            with pytest.raises(InvalidRequest, match="security is off"):
                await run(each)


async def test_a_password_is_in_effect_at_once_and_until_it_is_changed(administration, access, broker):
    admin = access(ADMIN)
    await administration.set_password(admin, "bob", "first")
    assert (await broker.authenticator.password("bob", "first")).principal == BOB
    await administration.set_password(admin, "bob", "second")
    with pytest.raises(AuthenticationFailed):
        await broker.authenticator.password("bob", "first")
    assert administration.list_credentials(admin) == [
        UserMechanism("bob", mechanism, ITERATIONS) for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    await administration.delete_user(admin, "bob")
    with pytest.raises(AuthenticationFailed):
        await broker.authenticator.password("bob", "second")
    with pytest.raises(UnknownUser):
        await administration.delete_user(admin, "bob")


async def test_a_token_is_in_effect_until_it_expires_or_is_deleted(administration, access, broker, clock):
    admin = access(ADMIN)
    short = await administration.create_token(admin, str(BOB), expires_at_ms=clock.now_ms() + 1_000)
    long = await administration.create_token(admin, str(BOB), description="for tests")
    assert long.stored.created_by == str(ADMIN)
    for token in (short, long):
        assert (await broker.authenticator.bearer(token.text)).principal == BOB
    clock.advance(1_000)
    with pytest.raises(AuthenticationFailed):
        await broker.authenticator.bearer(short.text)
    await administration.delete_token(admin, long.stored.id)
    with pytest.raises(AuthenticationFailed):
        await broker.authenticator.bearer(long.text)
    with pytest.raises(UnknownToken):
        await administration.delete_token(admin, long.stored.id)
    assert [each.id for each in administration.list_tokens(admin)] == [short.stored.id]


@pytest.mark.parametrize("principal", ["Broker:1", "bob", "User:"])
async def test_a_token_is_for_a_user(administration, access, principal):
    with pytest.raises(InvalidCredential):
        await administration.create_token(access(ADMIN), principal)


async def test_only_super_users_change_super_users(administration, access, delegate):
    admin = access(ADMIN)
    await administration.set_password(admin, "admin", "secret")
    token = await administration.create_token(admin, str(ADMIN))
    for call in (
        lambda: administration.set_password(delegate, "admin", "mine"),
        lambda: administration.delete_user(delegate, "admin"),
        lambda: administration.alter_credentials(delegate, [], [("admin", "SCRAM-SHA-256")]),
        lambda: administration.create_token(delegate, str(ADMIN)),
        lambda: administration.delete_token(delegate, token.stored.id),
    ):
        with pytest.raises(ClusterNotAuthorized, match="super users"):
            await call()
    await administration.set_password(delegate, "bob", "secret")


async def test_changes_are_in_the_audit_log_without_secrets(administration, access, caplog):
    admin = access(ADMIN)
    with caplog.at_level("INFO", logger="millpond.security.audit"):
        await administration.set_password(admin, "bob", "hunter2")
        token = await administration.create_token(admin, str(BOB))
        await administration.create_acls(admin, [DESCRIBE])
        await administration.delete_acls(admin, [AclFilter()])
        await administration.delete_token(admin, token.stored.id)
        await administration.delete_user(admin, "bob")
    changes = [each.change for each in caplog.records if each.message == "administrative change"]
    assert changes == [
        *("password set", "token created", "ACL created"),
        *("ACL deleted", "token deleted", "user deleted"),
    ]
    text = " ".join(str(vars(each)) for each in caplog.records)
    assert "hunter2" not in text
    assert token.text not in text
    assert "ALLOW DESCRIBE on LITERAL CLUSTER 'kafka-cluster' to User:alice from *" in text
