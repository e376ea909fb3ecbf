"""The APIs of ACLs and of SCRAM credentials, as an administrator uses them."""

import hashlib
from contextlib import AsyncExitStack

import pytest
from tests.unit.frontends.kafka.secured import ADMIN, SETTINGS, Cluster, log_in
from tests.unit.frontends.kafka.wire import Client

from millpond.frontends.kafka import rights as r
from millpond.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from millpond.protocol import ErrorCode
from millpond.protocol.messages import acls as wire
from millpond.protocol.messages import scram
from millpond.service import security_administration
from millpond.testing import running_broker

FIELDS = (
    "resource_type",
    "resource_pattern_type",
    "resource_name",
    "principal",
    "host",
    "operation",
    "permission_type",
)
ORDERS = Acl(
    ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*", AclOperation.READ, Permission.ALLOW
)
PREFIX = ORDERS._replace(pattern_type=PatternType.PREFIXED, name="ord")
EVERY = ORDERS._replace(name="*", permission=Permission.DENY)
GROUP = ORDERS._replace(resource_type=ResourceType.GROUP, name="g", host="192.0.2.1")
SHA_256, SHA_512 = 1, 2


@pytest.fixture
async def stack():
    async with AsyncExitStack() as closing:
        yield closing


@pytest.fixture
async def cluster(stack):
    made = Cluster(await stack.enter_async_context(running_broker(kafka=True, **SETTINGS)))
    await made.user()
    await made.user(ADMIN.name)
    return made


@pytest.fixture
async def admin(cluster, stack):
    return await cluster.connected(stack, ADMIN.name)


def creation(acl, **other):
    values = dict(zip(FIELDS, acl, strict=True))
    return wire.AclCreation(**{**values, **other})


def filter_fields(**given):
    anything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return {**anything, **given}


async def create(client, *creations, version=3):
    request = wire.CreateAclsRequest(creations=list(creations))
    return [each.error_code for each in (await client.send(request, version)).results]


async def listed(client, version=3, **given):
    response = await client.send(wire.DescribeAclsRequest(**filter_fields(**given)), version)
    assert response.error_code == 0, response.error_message
    return {
        Acl(
            *(each.resource_type, each.pattern_type, each.resource_name),
            *(acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        for each in response.resources
        for acl in each.acls
    }


# -- ACLs


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_what_is_created_is_listed_and_deleted(admin, version):
    assert await create(admin, *map(creation, (ORDERS, PREFIX, GROUP)), version=version) == [0, 0, 0]
    assert await listed(admin, version) == {ORDERS, PREFIX, GROUP}
    filters = [wire.DeleteAclsFilter(**filter_fields(resource_type_filter=ResourceType.GROUP))]
    response = await admin.send(wire.DeleteAclsRequest(filters=filters), version)
    assert [each.resource_name for each in response.filter_results[0].matching_acls] == ["g"]
    assert await listed(admin, version) == {ORDERS, PREFIX}


async def test_creating_twice_succeeds_and_keeps_one(admin):
    assert await create(admin, creation(ORDERS), creation(ORDERS)) == [0, 0]
    assert await create(admin, creation(ORDERS)) == [0]
    assert await listed(admin) == {ORDERS}


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_name": ""},
        {"resource_type": ResourceType.ANY},
        {"resource_pattern_type": PatternType.ANY},
        {"resource_pattern_type": PatternType.MATCH},
        {"operation": AclOperation.ANY},
        {"permission_type": Permission.ANY},
        {"resource_type": ResourceType.CLUSTER},
        {"principal": "alice"},
        {"host": ""},
    ],
    ids=str,
)
async def test_an_acl_that_cannot_exist_is_refused_alone(admin, wrong):
    assert await create(admin, creation(ORDERS, **wrong), creation(GROUP)) == [ErrorCode.INVALID_REQUEST, 0]
    assert await listed(admin) == {GROUP}


@pytest.mark.parametrize(
    "unknown",
    [{"resource_type": 0}, {"operation": 99}, {"permission_type": 0}, {"resource_pattern_type": 9}],
    ids=str,
)
async def test_an_unknown_code_refuses_the_whole_request(admin, unknown):
    assert (
        await create(admin, creation(GROUP), creation(ORDERS, **unknown)) == [ErrorCode.INVALID_REQUEST] * 2
    )
    assert await listed(admin) == set()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {ORDERS, PREFIX, EVERY, GROUP}),
        ({"resource_name_filter": "orders"}, {ORDERS}),
        (
            {"resource_name_filter": "orders", "pattern_type_filter": PatternType.MATCH},
            {ORDERS, PREFIX, EVERY},
        ),
        ({"resource_name_filter": "ordinary", "pattern_type_filter": PatternType.MATCH}, {PREFIX, EVERY}),
        ({"pattern_type_filter": PatternType.PREFIXED}, {PREFIX}),
        ({"host_filter": "192.0.2.1"}, {GROUP}),
        ({"principal_filter": "User:bob"}, set()),
        ({"permission_type": Permission.DENY}, {EVERY}),
        ({"operation": AclOperation.WRITE}, set()),
    ],
    ids=range(9),
)
async def test_filters_select(admin, given, expected):
    await create(admin, *map(creation, (ORDERS, PREFIX, EVERY, GROUP)))
    types = {"resource_type_filter": ResourceType.TOPIC} if "resource_name_filter" in given else {}
    assert await listed(admin, **given, **types) == expected


@pytest.mark.parametrize(
    "unknown", [{"operation": 0}, {"permission_type": 17}, {"resource_type_filter": 0}], ids=str
)
async def test_a_filter_with_an_unknown_code_is_refused_and_deletes_nothing(admin, unknown):
    await create(admin, creation(ORDERS))
    response = await admin.send(wire.DescribeAclsRequest(**filter_fields(**unknown)), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    filters = [wire.DeleteAclsFilter(**filter_fields(**given)) for given in ({}, unknown)]
    results = (await admin.send(wire.DeleteAclsRequest(filters=filters), 3)).filter_results
    assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert await listed(admin) == {ORDERS}


async def test_each_filter_returns_what_it_selected(admin):
    await create(admin, creation(ORDERS), creation(GROUP))
    filters = [
        wire.DeleteAclsFilter(**filter_fields(**given)) for given in ({}, {"host_filter": "192.0.2.1"})
    ]
    results = (await admin.send(wire.DeleteAclsRequest(filters=filters), 3)).filter_results
    assert [[acl.resource_name for acl in each.matching_acls] for each in results] == [["orders", "g"], ["g"]]
    assert await listed(admin) == set()


async def test_more_than_the_limit_is_not_deleted(admin, monkeypatch):
    monkeypatch.setattr(security_administration, "ACLS_DELETED_MAX", 1)
    await create(admin, creation(ORDERS), creation(GROUP))
    request = wire.DeleteAclsRequest(filters=[wire.DeleteAclsFilter(**filter_fields())])
    assert (await admin.send(request, 3)).filter_results[0].error_code == ErrorCode.INVALID_REQUEST
    assert await listed(admin) == {ORDERS, GROUP}


# -- SCRAM credentials


def salted(name, password="pencil", mechanism=SHA_256, iterations=4096, salt=b"0123456789abcdef"):
    hashed = {SHA_256: "sha256", SHA_512: "sha512"}.get(mechanism, "sha256")
    derived = hashlib.pbkdf2_hmac(hashed, password.encode(), salt, iterations)
    return scram.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=derived
    )


def deletion(name, mechanism=SHA_256):
    return scram.ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(client, *changes):
    deletions = [each for each in changes if isinstance(each, scram.ScramCredentialDeletion)]
    upsertions = [each for each in changes if isinstance(each, scram.ScramCredentialUpsertion)]
    request = scram.AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    return {each.user: each.error_code for each in (await client.send(request, 0)).results}


async def described(client, *users):
    asked = [scram.DescribedScramUser(name=user) for user in users]
    response = await client.send(scram.DescribeUserScramCredentialsRequest(users=asked), 0)
    assert response.error_code == 0
    return {
        each.user: each.error_code or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in response.results
    }


@pytest.mark.parametrize(("mechanism", "name"), [(SHA_256, "SCRAM-SHA-256"), (SHA_512, "SCRAM-SHA-512")])
async def test_a_user_that_is_created_can_log_in(admin, cluster, stack, mechanism, name):
    assert await alter(admin, salted("bob", "new", mechanism)) == {"bob": 0}
    assert await described(admin, "bob") == {"bob": [(mechanism, 4096)]}
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    assert (await log_in(client, "bob", "new", name)).error_code == 0


async def test_a_deleted_password_is_of_no_use(admin, cluster, stack):
    assert await alter(admin, deletion("alice")) == {"alice": 0}
    assert await described(admin, "alice") == {"alice": [(SHA_512, 4096)]}
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    assert (await log_in(client)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([salted("")], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([salted("bob", iterations=4095)], {"bob": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([salted("bob", iterations=16_385)], {"bob": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([salted("bob", mechanism=3)], {"bob": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([salted("bob"), salted("bob", mechanism=SHA_512)], {"bob": ErrorCode.DUPLICATE_RESOURCE}),
        ([deletion("alice"), salted("alice")], {"alice": ErrorCode.DUPLICATE_RESOURCE}),
        ([deletion("bob")], {"bob": ErrorCode.RESOURCE_NOT_FOUND}),
        ([deletion("alice", 9)], {"alice": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([deletion("")], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else " ".join(type(each).__name__[15:] for each in value),
)
async def test_a_change_that_is_not_possible_is_refused_alone(admin, changes, expected):
    before = await described(admin)
    assert await alter(admin, *changes, salted("carol")) == {**expected, "carol": 0}
    assert await described(admin) == {**before, "carol": [(SHA_256, 4096)]}


async def test_all_users_are_described_unless_some_are_named(admin):
    both = [(SHA_256, 4096), (SHA_512, 4096)]
    assert await described(admin) == {"admin": both, "alice": both}
    named = await described(admin, "alice", "bob", "carol", "carol")
    assert named == {
        "alice": both,
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
        "carol": ErrorCode.DUPLICATE_RESOURCE,
    }


async def test_only_super_users_change_super_users(cluster, stack):
    await cluster.grant(r.ALTER_CLUSTER)
    alice = await cluster.connected(stack)
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await alter(alice, salted(ADMIN.name), salted("bob")) == {ADMIN.name: refused, "bob": 0}
    assert await alter(alice, deletion(ADMIN.name)) == {ADMIN.name: refused}
    admin = await cluster.connected(stack, ADMIN.name)
    assert await alter(admin, salted(ADMIN.name, "new")) == {ADMIN.name: 0}


async def test_passwords_are_not_changed_where_others_can_read_them(admin, cluster):
    (connection,) = cluster.broker.kafka._connections
    connection._authentication.is_private = False
    assert await alter(admin, salted("bob")) == {"bob": ErrorCode.UNACCEPTABLE_CREDENTIAL}


async def test_a_client_without_rights_learns_nothing_about_its_request(cluster, stack):
    alice = await cluster.connected(stack)
    denied, wrong = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, filter_fields(operation=0)
    assert (await alice.send(wire.DescribeAclsRequest(**wrong), 3)).error_code == denied
    assert await create(alice, creation(ORDERS, operation=0)) == [denied]
    deleted = await alice.send(wire.DeleteAclsRequest(filters=[wire.DeleteAclsFilter(**wrong)]), 3)
    assert deleted.filter_results[0].error_code == denied
    assert await alter(alice, salted("bob"), deletion("bob")) == {"bob": denied}


# -- without security


async def test_without_security_all_of_them_say_so(interface):
    off = ErrorCode.SECURITY_DISABLED
    send = interface.send
    assert (await send(wire.DescribeAclsRequest(**filter_fields()), 3)).error_code == off
    assert await create(interface.client, creation(ORDERS)) == [off]
    deleted = await send(wire.DeleteAclsRequest(filters=[wire.DeleteAclsFilter(**filter_fields())]), 3)
    assert deleted.filter_results[0].error_code == off
    assert (await send(scram.DescribeUserScramCredentialsRequest(users=None), 0)).error_code == off
    assert await alter(interface.client, salted("bob")) == {"bob": off}
