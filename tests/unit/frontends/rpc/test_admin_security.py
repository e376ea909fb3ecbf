"""Users, API tokens and ACLs over gRPC."""

import grpc
import pytest
from tests.unit.frontends.rpc.wire import Wire
from tests.unit.frontends.secured import TOPIC, secured_broker

from millpond.stubs import admin_pb2 as pb

ACL = pb.Acl(resource_type="topic", name=TOPIC, principal="User:bob", operation="read")
SHOWN = pb.Acl(
    resource_type="topic",
    name=TOPIC,
    pattern_type="literal",
    principal="User:bob",
    host="*",
    operation="read",
    permission="allow",
)


@pytest.fixture
async def secured():
    async with secured_broker(grpc=True) as running:
        yield running


@pytest.fixture
async def admin(secured):
    """`await admin("ListUsers", request)` calls a method as a super user."""
    metadata = [("authorization", await secured.admin())]
    async with grpc.aio.insecure_channel(secured.broker.listeners["grpc"]) as channel:
        wire = Wire(channel)
        yield lambda method, request: wire(f"Admin.{method}", request, metadata=metadata)


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code()


async def test_users_are_put_listed_and_deleted(admin):
    await admin("PutUser", pb.PutUserRequest(name="bob", password="secret"))
    [user] = (await admin("ListUsers", pb.ListUsersRequest())).users
    assert user.name == "bob"
    assert sorted(each.mechanism for each in user.credentials) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert {each.iterations for each in user.credentials} == {16384}
    await admin("DeleteUser", pb.DeleteUserRequest(name="bob"))
    assert not (await admin("ListUsers", pb.ListUsersRequest())).users
    assert await refusal(admin("DeleteUser", pb.DeleteUserRequest(name="bob"))) is grpc.StatusCode.NOT_FOUND
    empty = admin("PutUser", pb.PutUserRequest(name="bob"))
    assert await refusal(empty) is grpc.StatusCode.INVALID_ARGUMENT


async def test_tokens_are_created_listed_and_deleted(secured, admin):
    expires_at_ms = secured.broker.clock.now_ms() + 60_000
    made = [
        await admin("CreateToken", pb.CreateTokenRequest(principal="User:ci", description="builds", **expiry))
        for expiry in ({}, {"expires_at_ms": expires_at_ms})
    ]
    stored = {each.id: each for each in (await admin("ListTokens", pb.ListTokensRequest())).tokens}
    forever, expiring = (stored[each.id] for each in made)
    assert not forever.HasField("expires_at_ms")
    assert expiring.expires_at_ms == expires_at_ms
    assert (forever.principal, forever.created_by, forever.description) == ("User:ci", "User:admin", "builds")
    assert all(each.token.startswith(f"mp_{each.id}_") for each in made)
    await admin("DeleteToken", pb.DeleteTokenRequest(id=forever.id))
    again = admin("DeleteToken", pb.DeleteTokenRequest(id=forever.id))
    assert await refusal(again) is grpc.StatusCode.NOT_FOUND


async def test_acls_are_created_listed_and_deleted(admin):
    other = pb.Acl(resource_type="cluster", principal="User:carol", operation="alter", permission="deny")
    await admin("CreateAcls", pb.CreateAclsRequest(acls=[ACL, other]))
    listed = (await admin("ListAcls", pb.ListAclsRequest())).acls
    assert [(each.resource_type, each.name) for each in listed] == [
        ("topic", TOPIC),
        ("cluster", "kafka-cluster"),
    ]
    assert listed[0] == SHOWN
    selected = pb.Acl(principal="User:bob")
    assert list((await admin("ListAcls", pb.ListAclsRequest(filter=selected))).acls) == [SHOWN]
    deleted = await admin("DeleteAcls", pb.DeleteAclsRequest(filter=selected))
    assert list(deleted.acls) == [SHOWN]
    assert len((await admin("ListAcls", pb.ListAclsRequest())).acls) == 1


@pytest.mark.parametrize("acls", [[], [ACL, pb.Acl()], [ACL] * 1001])
async def test_acls_are_created_all_or_none(admin, acls):
    creating = admin("CreateAcls", pb.CreateAclsRequest(acls=acls))
    assert await refusal(creating) is grpc.StatusCode.INVALID_ARGUMENT
    assert not (await admin("ListAcls", pb.ListAclsRequest())).acls


@pytest.mark.parametrize("selection", [None, pb.Acl(), pb.Acl(pattern_type="match"), pb.Acl(operation="any")])
async def test_a_filter_that_would_delete_all_acls_is_refused(admin, selection):
    await admin("CreateAcls", pb.CreateAclsRequest(acls=[ACL]))
    deleting = admin("DeleteAcls", pb.DeleteAclsRequest(filter=selection))
    assert await refusal(deleting) is grpc.StatusCode.INVALID_ARGUMENT
    assert len((await admin("ListAcls", pb.ListAclsRequest())).acls) == 1


async def test_quotas_are_set_listed_and_removed(admin):
    alice, everyone, address = (
        pb.QuotaEntity(user="alice", client_id="etl"),
        pb.QuotaEntity(user=""),
        pb.QuotaEntity(ip="192.0.2.1"),
    )
    alterations = [
        pb.QuotaAlteration(entity=alice, set={"producer_byte_rate": 1_000, "request_percentage": 12.5}),
        pb.QuotaAlteration(entity=everyone, set={"consumer_byte_rate": 2_000}),
        pb.QuotaAlteration(entity=address, set={"connection_creation_rate": 5}),
        pb.QuotaAlteration(entity=pb.QuotaEntity(topic="team-*"), set={"stored_bytes": 1_000}),
    ]
    await admin("AlterQuotas", pb.AlterQuotasRequest(alterations=alterations, validate_only=True))
    assert not (await admin("ListQuotas", pb.ListQuotasRequest())).quotas
    await admin("AlterQuotas", pb.AlterQuotasRequest(alterations=alterations))
    found = [
        (str(each.entity), dict(each.values))
        for each in (await admin("ListQuotas", pb.ListQuotasRequest())).quotas
    ]
    assert sorted(found) == sorted((str(each.entity), dict(each.set)) for each in alterations)
    removal = pb.QuotaAlteration(entity=alice, remove=["producer_byte_rate", "request_percentage"])
    await admin("AlterQuotas", pb.AlterQuotasRequest(alterations=[removal]))
    left = (await admin("ListQuotas", pb.ListQuotasRequest())).quotas
    assert alice not in [each.entity for each in left]
    assert len(left) == 3


async def test_quotas_that_make_no_sense_are_refused_and_nothing_is_changed(admin):
    good = pb.QuotaAlteration(entity=pb.QuotaEntity(user="alice"), set={"producer_byte_rate": 1})
    for wrong in (
        [],
        [pb.QuotaAlteration(set={"producer_byte_rate": 1})],
        [pb.QuotaAlteration(entity=pb.QuotaEntity(user="alice"))],
        [good, pb.QuotaAlteration(entity=pb.QuotaEntity(user="alice"), set={"speed": 1})],
        [good, pb.QuotaAlteration(entity=pb.QuotaEntity(user="alice"), set={"producer_byte_rate": 0})],
        [
            good,
            pb.QuotaAlteration(
                entity=pb.QuotaEntity(user="a", ip="192.0.2.1"), set={"producer_byte_rate": 1}
            ),
        ],
        [pb.QuotaAlteration(entity=good.entity, set=dict(good.set), remove=["producer_byte_rate"])],
    ):
        refused = admin("AlterQuotas", pb.AlterQuotasRequest(alterations=wrong))
        assert await refusal(refused) is grpc.StatusCode.INVALID_ARGUMENT, wrong
    assert not (await admin("ListQuotas", pb.ListQuotasRequest())).quotas
