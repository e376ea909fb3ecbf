"""Users, API tokens and ACLs over HTTP."""

import httpx
import pytest
from tests.unit.frontends.secured import TOPIC, secured_broker

from millpond.model.principals import Principal
from millpond.testing import running_broker

ACL = {"resource_type": "topic", "name": TOPIC, "principal": "User:bob", "operation": "read"}
SHOWN = {**ACL, "pattern_type": "literal", "host": "*", "permission": "allow"}


@pytest.fixture
async def secured():
    async with secured_broker(http=True) as running:
        yield running


@pytest.fixture
async def client(secured):
    base, headers = f"http://{secured.broker.listeners['http']}", {"authorization": await secured.admin()}
    async with httpx.AsyncClient(base_url=base, timeout=60, headers=headers) as opened:
        yield opened


async def acls(client, **query):
    return (await client.get("/security/acls", params=query)).json()["acls"]


async def test_users_are_put_listed_and_deleted(client):
    assert (await client.get("/security/users")).json() == {"users": []}
    for user in ("bob", "a%2Fb", "bob"):
        assert (await client.put(f"/security/users/{user}", json={"password": "secret"})).status_code == 204
    found = (await client.get("/security/users")).json()["users"]
    assert [each["name"] for each in found] == ["a/b", "bob"]
    mechanisms = [(each["mechanism"], each["iterations"]) for each in found[0]["credentials"]]
    assert sorted(mechanisms) == [("SCRAM-SHA-256", 16384), ("SCRAM-SHA-512", 16384)]
    assert (await client.delete("/security/users/bob")).status_code == 204
    answer = await client.delete("/security/users/bob")
    assert (answer.status_code, answer.json()["code"]) == (404, "UnknownUser")


@pytest.mark.parametrize("body", [{}, {"password": ""}, {"password": 1}, {"password": "x", "more": 1}])
async def test_a_user_needs_a_password(client, body):
    assert (await client.put("/security/users/bob", json=body)).status_code == 400


async def test_a_token_is_shown_once_and_works_until_it_is_deleted(secured, client):
    new = {"principal": "User:ci", "description": "builds"}
    made = (await client.post("/security/tokens", json=new)).json()
    as_ci = {"authorization": f"Bearer {made['token']}"}
    assert (await client.get("/topics", headers=as_ci)).status_code == 200
    listed = await client.get("/security/tokens")
    [shown] = [each for each in listed.json()["tokens"] if each["id"] == made["id"]]
    assert made["token"] not in listed.text
    assert shown == {
        "id": made["id"],
        "principal": "User:ci",
        "created_by": "User:admin",
        "description": "builds",
        "created_at_ms": shown["created_at_ms"],
    }
    assert (await client.delete(f"/security/tokens/{made['id']}")).status_code == 204
    assert (await client.get("/topics", headers=as_ci)).status_code == 401
    assert (await client.delete(f"/security/tokens/{made['id']}")).status_code == 404


async def test_a_token_can_expire(secured, client):
    expires_at_ms = secured.broker.clock.now_ms() + 60_000
    new = {"principal": "User:ci", "expires_at_ms": expires_at_ms}
    made = (await client.post("/security/tokens", json=new)).json()
    assert secured.broker.security.token(made["id"]).expires_at_ms == expires_at_ms
    answer = await client.post("/security/tokens", json={"principal": "User:ci", "expires_at_ms": 1})
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidCredential")


@pytest.mark.parametrize("principal", ["Broker:1", "ci", "", "User:"])
async def test_a_token_is_for_a_user(client, principal):
    assert (await client.post("/security/tokens", json={"principal": principal})).status_code == 400


async def test_acls_are_created_listed_and_deleted(client):
    other = {**SHOWN, "operation": "write", "principal": "User:carol", "permission": "deny"}
    for _ in range(2):
        assert (await client.post("/security/acls", json={"acls": [ACL, other]})).status_code == 204
    assert await acls(client) == [SHOWN, other]
    assert await acls(client, principal="User:carol", permission="deny") == [other]
    assert await acls(client, pattern_type="match", name=TOPIC, operation="read") == [SHOWN]
    deleted = await client.delete("/security/acls", params={"principal": "User:bob"})
    assert deleted.json() == {"acls": [SHOWN]}
    assert await acls(client) == [other]


async def test_acls_are_created_all_or_none(client):
    answer = await client.post("/security/acls", json={"acls": [ACL, {**ACL, "principal": "bob"}]})
    assert (answer.status_code, answer.json()["code"]) == (400, "InvalidAcl")
    assert await acls(client) == []


@pytest.mark.parametrize("query", [{}, {"name": ""}, {"pattern_type": "match"}])
async def test_a_query_that_would_delete_all_acls_is_refused(client, query):
    await client.post("/security/acls", json={"acls": [ACL]})
    assert (await client.delete("/security/acls", params=query)).status_code == 400
    assert await acls(client) == [SHOWN]


async def test_only_a_super_user_changes_super_users(secured, client):
    headers = {"authorization": await secured.user("ALTER C")}
    for answer in (
        await client.put("/security/users/admin", json={"password": "mine"}, headers=headers),
        await client.post("/security/tokens", json={"principal": "User:admin"}, headers=headers),
        await client.delete(f"/security/tokens/{secured.token_ids['admin']}", headers=headers),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "ClusterNotAuthorized")
    assert (await client.get("/security/users")).json() == {"users": []}


async def test_without_security_users_cannot_be_prepared():
    async with running_broker(http=True, super_users=(Principal("User", "admin"),)) as broker:
        base = f"http://{broker.listeners['http']}"
        async with httpx.AsyncClient(base_url=base, timeout=60) as opened:
            answer = await opened.put("/security/users/admin", json={"password": "mine"})
            assert (answer.status_code, "security" in answer.json()["message"]) == (400, True)
            assert (await opened.get("/security/users")).status_code == 400


async def test_no_secret_is_logged(secured, client, caplog):
    caplog.set_level("DEBUG", "millpond")
    await client.put("/security/users/bob", json={"password": "very-secret"})
    made = (await client.post("/security/tokens", json={"principal": "User:ci"})).json()
    await client.get("/topics", headers={"authorization": f"Bearer {made['token']}x"})
    assert "authentication failed" in caplog.text
    for secret in ("very-secret", made["token"], made["token"].rpartition("_")[2]):
        assert secret not in caplog.text


# -- quotas -------------------------------------------------------------------------------------------------------


async def quotas(client):
    return (await client.get("/security/quotas")).json()["quotas"]


def in_order(quotas):
    return sorted(quotas, key=lambda each: sorted(each["values"]))


async def test_quotas_are_set_listed_and_removed(client):
    entries = [
        {
            "user": "alice",
            "client_id": "etl",
            "values": {"producer_byte_rate": 1000, "request_percentage": 12.5},
        },
        {"user": "", "values": {"consumer_byte_rate": 2000}},
        {"ip": "192.0.2.1", "values": {"connection_creation_rate": 5}},
        {"topic": "team-*", "values": {"stored_bytes": 1000}},
    ]
    for validate_only, expected in ((True, []), (False, entries)):
        body = {"alterations": entries, "validate_only": validate_only}
        assert (await client.patch("/security/quotas", json=body)).status_code == 204
        assert in_order(await quotas(client)) == in_order(expected)
    removal = {"user": "", "values": {"consumer_byte_rate": None}}
    assert (await client.patch("/security/quotas", json={"alterations": [removal]})).status_code == 204
    assert len(await quotas(client)) == 3


async def test_quotas_that_make_no_sense_are_refused_and_nothing_is_changed(client):
    good = {"user": "alice", "values": {"producer_byte_rate": 1}}
    for wrong in (
        [],
        [{"values": {"producer_byte_rate": 1}}],
        [{"user": "alice", "values": {}}],
        [good, {"user": "alice", "values": {"speed": 1}}],
        [good, {"user": "alice", "values": {"producer_byte_rate": -1}}],
        [good, {"ip": "here", "values": {"connection_creation_rate": 1}}],
    ):
        answer = await client.patch("/security/quotas", json={"alterations": wrong})
        assert (answer.status_code, answer.json()["code"]) == (400, "InvalidRequest"), wrong
    assert await quotas(client) == []
