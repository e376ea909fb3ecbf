"""Every HTTP operation: who may call it, and that a refused request changes nothing."""

import json

import httpx
import pytest
from tests.unit.frontends.secured import (
    ABSENT,
    GROUP,
    SUBSCRIPTION,
    TOPIC,
    partial_rights,
    renamed,
    secured_broker,
)

from millpond.frontends.web import handlers  # noqa: F401  # handlers register themselves
from millpond.frontends.web.operations import NO_BODY, OPERATIONS, HttpCall, NoParameters, operation
from millpond.security import OPEN_ACCESS
from millpond.security.requirements import ANYONE, PUBLIC

PATH = {
    "topic": TOPIC,
    "subscription": SUBSCRIPTION,
    "group": GROUP,
    "partition": "0",
    "offset": "0",
    "payload": "0199e8a0-0000-7000-8000-000000000000",
    "user": "bob",
    "token": "aaaaaaaaaaaa",
}
ACL = {"resource_type": "topic", "name": TOPIC, "principal": "User:bob", "operation": "read"}
BODIES = {
    "create_topic": {"name": "new", "partitions": 1},
    "alter_topic": {"partitions": 2, "configs": {"retention.ms": "1000"}},
    "produce": {"value": "x"},
    "produce_to_partition": {"value": "x"},
    "commit_offsets": {"topic": TOPIC, "offsets": [{"partition": 0, "offset": 0}]},
    "create_subscription": {"name": "second", "config": {"dead_letter_topic": "letters"}},
    "alter_subscription": {"config": {"dead_letter_topic": "letters"}},
    "reset_subscription": {"start": {"at": "latest"}},
    "redrive_dead_letters": {},
    "pull": {"consumer": "c", "messages_max": 1},
    "ack": {"consumer": "c", "ack_ids": []},
    "nack": {"consumer": "c", "ack_ids": []},
    "extend": {"consumer": "c", "ack_ids": [], "extend_ms": 1000},
    "upload_payload": b"body",
    "put_user": {"password": "secret"},
    "create_token": {"principal": "User:bob"},
    "create_acls": {"acls": [ACL]},
    "alter_quotas": {"alterations": [{"user": "bob", "values": {"producer_byte_rate": 1000}}]},
    "log_in": {"username": "bob", "password": "wrong"},
    "log_out_by_form": b"",
}
QUERIES = {"stream": "follow=false", "delete_acls": "principal=User:bob"}
OF_SUBSCRIPTION = f"G {TOPIC}/{SUBSCRIPTION}"
CONSUME = [f"READ {OF_SUBSCRIPTION}", f"READ T {TOPIC}"]
RIGHTS = {
    "show_index": [],
    "show_openapi": [],
    "show_metrics": ["DESCRIBE C"],
    "show_cluster": ["DESCRIBE C"],
    "create_topic": ["CREATE T new"],
    "list_topics": [],
    "describe_topic": [f"DESCRIBE T {TOPIC}"],
    "alter_topic": [f"ALTER T {TOPIC}", f"ALTER_CONFIGS T {TOPIC}"],
    "delete_topic": [f"DELETE T {TOPIC}"],
    "produce": [f"WRITE T {TOPIC}"],
    "produce_to_partition": [f"WRITE T {TOPIC}"],
    "fetch": [f"READ T {TOPIC}"],
    "fetch_message": [f"READ T {TOPIC}"],
    "stream": [f"READ T {TOPIC}"],
    "place_payload": [f"WRITE T {TOPIC}"],
    "upload_payload": [f"WRITE T {TOPIC}"],
    "download_payload": [f"READ T {TOPIC}"],
    "list_groups": [],
    "describe_group": [f"DESCRIBE G {GROUP}"],
    "commit_offsets": [f"READ G {GROUP}", f"READ T {TOPIC}"],
    "delete_group": [f"DELETE G {GROUP}"],
    "create_subscription": [f"READ G {TOPIC}/second", f"READ T {TOPIC}", "WRITE T letters"],
    "list_subscriptions": [f"DESCRIBE T {TOPIC}"],
    "describe_subscription": [f"DESCRIBE {OF_SUBSCRIPTION}", f"DESCRIBE T {TOPIC}"],
    "alter_subscription": [f"ALTER_CONFIGS {OF_SUBSCRIPTION}", "WRITE T letters"],
    "delete_subscription": [f"DELETE {OF_SUBSCRIPTION}"],
    "reset_subscription": CONSUME,
    "redrive_dead_letters": [*CONSUME, f"WRITE T {TOPIC}"],
    "unblock_subscription": CONSUME,
    "pull": CONSUME,
    "ack": CONSUME,
    "nack": CONSUME,
    "extend": CONSUME,
    **{key: ["DESCRIBE C"] for key in ("list_users", "list_tokens", "list_acls")},
    **{key: ["ALTER C"] for key in ("put_user", "delete_user", "create_token", "delete_token")},
    **{key: ["ALTER C"] for key in ("create_acls", "delete_acls", "end_sessions")},
    "list_quotas": ["DESCRIBE_CONFIGS C"],
    "alter_quotas": ["ALTER_CONFIGS C"],
}
"""The rights that each operation needs for the requests of this test, written down apart from its declaration."""
PUBLIC_OPERATIONS = {"check_health", "check_readiness"}
LOGINS = {"log_in": 401, "begin_oidc_login": 400, "finish_oidc_login": 400}
"""Operations by which clients authenticate, with the status that a request without a right proof gets. They are public,
and have an effect only with one; OIDC is not configured here."""
OF_ANYONE = {"show_session", "log_out", "log_out_by_form"}
"""Operations that concern the session of the client itself, if it has one."""
BY_NAME = {each.name: each for each in OPERATIONS}
GUARDED = [each for each in BY_NAME if each not in PUBLIC_OPERATIONS | set(LOGINS) | OF_ANYONE]
CHECKED = [each for each in GUARDED if RIGHTS.get(each)]


async def send(client, name, authorization=None, *, instead=None):
    """`instead` replaces the names of resources."""
    found = BY_NAME[name]
    path = {**PATH, **(instead or {})}
    body = BODIES.get(name)
    headers = {} if authorization is None else {"authorization": authorization}
    if isinstance(body, dict):
        text = json.dumps(body)
        for each, other in (instead or {}).items():
            text = text.replace(f'"{PATH[each]}"', f'"{other}"')
        body, headers["content-type"] = text.encode(), "application/json"
    return await client.request(
        found.method,
        found.path.format(**path),
        params=httpx.QueryParams(QUERIES.get(name, "")),
        content=body,
        headers=headers,
    )


@pytest.fixture
async def secured():
    async with secured_broker(http=True) as running:
        yield running


@pytest.fixture
async def client(secured):
    base = f"http://{secured.broker.listeners['http']}"
    async with httpx.AsyncClient(base_url=base, timeout=60) as connected:
        yield connected


def test_every_operation_is_in_the_tables():
    assert set(RIGHTS) | PUBLIC_OPERATIONS | set(LOGINS) | OF_ANYONE == set(BY_NAME)
    assert {each.name for each in OPERATIONS if each.rule is PUBLIC} == PUBLIC_OPERATIONS | set(LOGINS)
    assert {each.name for each in OPERATIONS if each.rule is ANYONE} == OF_ANYONE
    assert {each.name for each in OPERATIONS if each.body is not NO_BODY} == set(BODIES)


def test_an_operation_without_a_rule_cannot_be_declared():
    async def handler(_: HttpCall) -> None: ...

    with pytest.raises(TypeError, match="rights"):
        operation("GET", "/x", parameters=NoParameters, query=NoParameters, body=NO_BODY, returns={})(handler)


@pytest.mark.parametrize("name", GUARDED)
async def test_a_client_that_does_not_authenticate_is_refused(secured, client, name):
    before = await secured.snapshot()
    answer = await send(client, name)
    assert (answer.status_code, answer.json()["code"]) == (401, "NotAuthenticated")
    assert answer.headers["www-authenticate"] == 'Basic realm="millpond", Bearer'
    assert await secured.snapshot() == before


@pytest.mark.parametrize("name", sorted(PUBLIC_OPERATIONS))
async def test_a_public_operation_needs_no_client_to_authenticate(client, name):
    assert (await send(client, name)).status_code == 200
    assert (await send(client, name, "Bearer wrong")).status_code == 200


async def test_operations_of_sessions_without_a_session_have_no_effect_and_show_no_rights(secured, client):
    before = await secured.snapshot()
    for name, status in LOGINS.items():
        assert (await send(client, name)).status_code == status, name
    for name in sorted(OF_ANYONE):
        anonymous = await send(client, name)
        assert (anonymous.status_code < 400, "set-cookie" in anonymous.headers) == (
            True,
            name != "show_session",
        )
        assert "rights" not in anonymous.text
        assert (await send(client, name, "Bearer wrong")).status_code == 401, name
        assert (await send(client, name, await secured.user())).status_code < 400, name
    shown = (await send(client, "show_session", await secured.user("DESCRIBE C"))).json()
    assert shown["rights"] == {"super_user": False, "cluster": ["describe"], "topics": [], "groups": []}
    assert (await secured.snapshot())[:-1] == before[:-1]


@pytest.mark.parametrize("name", CHECKED)
async def test_each_right_is_needed_and_together_they_are_enough(secured, client, name):
    before = await secured.snapshot()
    for missing in RIGHTS[name]:
        others = [each for each in RIGHTS[name] if each != missing]
        user = await secured.user(*others)
        before = await secured.snapshot()
        assert (await send(client, name, user)).status_code == 403, missing
        assert await secured.snapshot() == before, missing
    answer = await send(client, name, await secured.user(*RIGHTS[name]))
    assert answer.status_code not in (401, 403), answer.text


@pytest.mark.parametrize("name", CHECKED)
async def test_a_refusal_does_not_tell_whether_a_resource_exists(secured, client, name):
    """Whichever right is missing; a tenant has rights on names of its own, too."""
    own = ["READ T mine", "ALL G mine", "ALL G mine/mine"]
    for missing, rights in [("all", []), *partial_rights(RIGHTS[name])]:
        user = await secured.user(*own, *rights)
        before = await secured.snapshot()
        existing = await send(client, name, user)
        absent = await send(
            client, name, user, instead={"topic": ABSENT, "subscription": ABSENT, "group": ABSENT}
        )
        assert existing.status_code == absent.status_code == 403, missing
        assert renamed(existing.text) == absent.text, missing
        assert kept_headers(existing) == kept_headers(absent), missing
        assert await secured.snapshot() == before


def kept_headers(response):
    return {key: value for key, value in response.headers.items() if key not in ("date", "content-length")}


@pytest.mark.parametrize("name", [each for each in GUARDED if not RIGHTS[each]])
async def test_every_client_that_has_authenticated_may_call_the_others(secured, client, name):
    answer = await send(client, name, await secured.user())
    assert answer.status_code == 200


async def test_a_right_on_the_cluster_is_enough_to_create_topics(secured, client):
    assert (await send(client, "create_topic", await secured.user("CREATE C"))).status_code == 200


@pytest.mark.parametrize(
    ("body", "rights"),
    [
        ({}, [f"DESCRIBE T {TOPIC}"]),
        ({"partitions": 2}, [f"ALTER T {TOPIC}"]),
        ({"configs": {"retention.ms": "1000"}}, [f"DESCRIBE T {TOPIC}", f"ALTER_CONFIGS T {TOPIC}"]),
    ],
)
async def test_altering_a_topic_needs_the_rights_of_what_is_altered(secured, client, body, rights):
    user = await secured.user(*rights)
    url = f"/topics/{TOPIC}"
    assert (await client.patch(url, json=body, headers={"authorization": user})).status_code == 200
    everything = {"partitions": 3, "configs": {"retention.ms": "2000"}}
    assert (await client.patch(url, json=everything, headers={"authorization": user})).status_code == 403


async def test_configs_are_shown_with_the_right_to_describe_them(secured, client):
    await secured.broker.administration.alter_topic(
        TOPIC, changes={"retention.ms": "1000"}, access=OPEN_ACCESS
    )
    user = await secured.user(f"DESCRIBE T {TOPIC}")
    described = (await send(client, "describe_topic", user)).json()
    assert set(described["configs"]) == {"max.message.bytes", "payload"}
    assert [each["configs"] for each in (await send(client, "list_topics", user)).json()["topics"]] == [{}]
    user = await secured.user(f"DESCRIBE T {TOPIC}", f"DESCRIBE_CONFIGS T {TOPIC}")
    described = (await send(client, "describe_topic", user)).json()
    assert described["configs"]["retention.ms"] == {"value": "1000", "source": "topic"}
    [listed] = (await send(client, "list_topics", user)).json()["topics"]
    assert listed["configs"] == {"retention.ms": "1000"}


async def test_lists_show_what_the_client_may_describe(secured, client):
    await secured.broker.administration.create_topic("hidden", access=OPEN_ACCESS)
    await secured.broker.administration.commit("hidden", TOPIC, {0: 1})
    await secured.broker.queues.create(TOPIC, "hidden")
    rights = [f"READ T {TOPIC}", f"DELETE G {GROUP}", f"READ {OF_SUBSCRIPTION}"]
    user = await secured.user(*rights)
    assert [each["name"] for each in (await send(client, "list_topics", user)).json()["topics"]] == [TOPIC]
    assert [each["group"] for each in (await send(client, "list_groups", user)).json()["groups"]] == [GROUP]
    shown = (await send(client, "list_subscriptions", user)).json()["subscriptions"]
    assert [each["name"] for each in shown] == [SUBSCRIPTION]
    everything = await send(client, "list_groups", await secured.user("DESCRIBE C"))
    assert [each["group"] for each in everything.json()["groups"]] == ["hidden", GROUP]


async def test_a_group_shows_its_offsets_in_topics_that_the_client_may_describe(secured, client):
    answer = await send(client, "describe_group", await secured.user(f"DESCRIBE G {GROUP}"))
    assert answer.json()["partitions"] == []
    answer = await send(
        client, "describe_group", await secured.user(f"DESCRIBE G {GROUP}", f"READ T {TOPIC}")
    )
    assert [each["topic"] for each in answer.json()["partitions"]] == [TOPIC]


@pytest.mark.parametrize("path", ["/topics/new/produce", "/topics/new/produce/0"])
async def test_producing_creates_a_topic_only_with_the_right_to_create_it(secured, client, path):
    before = await secured.snapshot()
    user = await secured.user("WRITE T new")
    answer = await client.post(path, json={"value": "x"}, headers={"authorization": user})
    assert (answer.status_code, answer.json()["code"]) == (403, "TopicNotAuthorized")
    assert (await secured.snapshot())[0] == before[0]
    user = await secured.user("WRITE T new", "CREATE T new")
    assert (await client.post(path, json={"value": "x"}, headers={"authorization": user})).status_code == 200


@pytest.mark.parametrize(("method", "path"), [("GET", "/unknown"), ("DELETE", "/topics")])
async def test_only_clients_that_have_authenticated_learn_which_paths_exist(secured, client, method, path):
    assert (await client.request(method, path)).status_code == 401
    user = await secured.user()
    answer = await client.request(method, path, headers={"authorization": user})
    assert answer.status_code in (404, 405)


async def test_the_body_of_a_refused_request_is_not_read(secured, client):
    """A body that is not JSON would be refused with another status."""
    user = await secured.user()
    answer = await client.post(
        f"/topics/{TOPIC}/produce",
        content=b"{",
        headers={"authorization": user, "content-type": "application/json"},
    )
    assert answer.status_code == 403
