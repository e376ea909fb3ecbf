"""Sessions of browsers over HTTP: login, cookie, requests that other origins forge, logout, and when a session ends."""

import asyncio
import json

import httpx
import pytest
from tests.cluster.near import near_brokers
from tests.each import for_each
from tests.tls import Pki
from tests.unit.frontends.secured import ADMIN, TOPIC, secured_broker

from millpond.catalog.sessions import IDLE_MS
from millpond.frontends.web.handlers.sessions import local_path
from millpond.model.errors import InvalidRequest, NotOwner
from millpond.security import Identity
from millpond.security.sessions import LIFETIME_MS, Sessions
from millpond.service import MessageWriter
from millpond.testing import SimulatedClock, running_broker

COOKIE = "millpond-session"
PASSWORD = "the password of bob"
BOB = {"username": "bob", "password": PASSWORD}
BY_SCRIPT = {"x-millpond-request": "1"}
ITERATIONS = 4096


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
async def secured(clock):
    async with secured_broker(http=True, clock=clock, password_iterations=ITERATIONS) as running:
        await put_password(running.broker)
        yield running


@pytest.fixture
async def client(secured):
    async with browser(secured.broker) as opened:
        yield opened


def browser(broker, **options):
    base = f"http://{broker.listeners['http']}"
    return httpx.AsyncClient(base_url=base, timeout=60, **options)


async def put_password(broker, password=PASSWORD):
    access = broker.security.access(Identity(ADMIN, "test"), "127.0.0.1")
    await broker.security_administration.set_password(access, "bob", password)


async def log_in(client, **body):
    answer = await client.post("/session", json=body or BOB)
    assert answer.status_code == 200, answer.text
    return answer


def code(answer):
    return answer.status_code, answer.json()["code"]


# -- login and logout ------------------------------------------------------------------------------------------------


async def test_a_login_gives_a_cookie_that_proves_who_the_user_is_until_the_logout(secured, client, caplog):
    caplog.set_level("INFO", "millpond.security.audit")
    await secured.allow("bob", "DESCRIBE C", f"WRITE T {TOPIC}")
    before = (await client.get("/session")).json()
    assert before == {"security": True, "login": {"password": True, "token": True}}
    assert code(await client.get("/topics")) == (401, "NotAuthenticated")

    answer = await log_in(client)
    session_id = client.cookies[COOKIE]
    assert (
        answer.headers["set-cookie"] == f"{COOKIE}={session_id}; Path=/; HttpOnly; SameSite=Strict"
    )  # without TLS
    shown = answer.json()
    assert (shown["principal"], shown["method"]) == ("User:bob", "password")
    assert shown["rights"] == {
        "super_user": False,
        "cluster": ["describe"],
        "topics": ["write"],
        "groups": [],
    }
    assert shown["expires_at_ms"] == secured.broker.clock.now_ms() + LIFETIME_MS
    assert shown["idle_until_ms"] == secured.broker.clock.now_ms() + IDLE_MS
    again = await client.get("/session")
    assert (again.json(), again.headers["cache-control"]) == (shown, "no-store")
    assert (await client.get("/topics")).json()["topics"][0]["name"] == TOPIC

    assert (await client.delete("/session", headers=BY_SCRIPT)).status_code == 204
    assert COOKIE not in client.cookies
    assert (await client.get("/topics")).status_code == 401
    old = {"cookie": f"{COOKIE}={session_id}"}
    assert code(await client.get("/topics", headers=old)) == (401, "AuthenticationFailed")
    assert (await client.get("/session", headers=old)).headers["set-cookie"].startswith(f"{COOKIE}=;")
    assert (await client.delete("/session", headers=old | BY_SCRIPT)).status_code == 204
    events = [each.message for each in caplog.records if each.name == "millpond.security.audit"]
    assert [each for each in events if "session" in each] == ["session opened", "session ended"]


async def test_a_wrong_login_says_nothing_about_its_cause_and_is_in_the_audit_log(secured, client, caplog):
    caplog.set_level("DEBUG", "millpond")
    wrong = [
        {"username": "bob", "password": "wrong-password"},
        {"username": "unknown", "password": PASSWORD},
        {"username": "", "password": PASSWORD},
        {"token": "mp_aaaaaaaaaaaa_" + 43 * "a"},
        {"token": "x"},
    ]
    answers = [await client.post("/session", json=each) for each in wrong]
    assert {each.text for each in answers} == {answers[0].text}
    assert {code(each) for each in answers} == {(401, "AuthenticationFailed")}
    assert {each.headers["www-authenticate"] for each in answers} == {'Bearer realm="millpond"'}
    assert not any("set-cookie" in each.headers for each in answers)
    assert caplog.text.count("authentication failed") == len(wrong)
    assert "wrong-password" not in caplog.text
    assert PASSWORD not in caplog.text
    for body in ({}, {"username": "bob"}, {**BOB, "token": "x"}, {**BOB, "next": "/"}, {"username": 1}):
        assert (await client.post("/session", json=body)).status_code == 400


async def test_a_token_opens_a_session_that_ends_with_it(secured, client):
    token = (await secured.user(name="carol", lifetime_ms=60_000)).removeprefix("Bearer ")
    shown = (await log_in(client, token=token)).json()
    assert (shown["principal"], shown["method"]) == ("User:carol", "token")
    assert shown["expires_at_ms"] == secured.broker.clock.now_ms() + 60_000
    await secured.revoke("carol")
    assert code(await client.get("/topics")) == (401, "AuthenticationFailed")


async def test_the_id_changes_at_login_and_the_old_session_ends(secured, client):
    """A page that has planted a cookie in a browser does not know the id after the login (session fixation)."""
    planted = {"cookie": f"{COOKIE}=planted"}
    assert (await client.post("/session", json=BOB, headers=planted)).status_code == 200
    first = client.cookies[COOKIE]
    await log_in(client)
    second = client.cookies[COOKIE]
    assert len({"planted", first, second}) == 3
    for session_id, status in (("planted", 401), (first, 401), (second, 200)):
        async with browser(secured.broker) as other:
            headers = {"cookie": f"{COOKIE}={session_id}"}
            assert (await other.get("/topics", headers=headers)).status_code == status


async def test_without_javascript_forms_log_in_and_out(secured, client):
    form = {**BOB, "next": "/topics?x=1", "failed": "/login?failed"}
    answer = await client.post("/session", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics?x=1")
    token = (await client.get("/session")).json()["csrf_token"]
    answer = await client.post("/session/logout", data={"csrf_token": token, "next": "/bye"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/bye")
    assert (await client.get("/topics")).status_code == 401
    answer = await client.post("/session", data=form | {"password": "wrong"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?failed")
    assert (await client.post("/session", data={**BOB, "password": "wrong"})).status_code == 401
    assert COOKIE not in client.cookies
    twice = await client.post(
        "/session",
        content=b"username=bob&username=x&password=y",
        headers={"content-type": "application/x-www-form-urlencoded"},
    )
    assert twice.status_code == 400


# -- forged requests -------------------------------------------------------------------------------------------------


async def test_a_change_with_a_cookie_needs_the_header_or_the_token_of_the_form(secured, client):
    await secured.allow("bob", "CREATE T new", f"WRITE T {TOPIC}")
    await log_in(client)
    before = await secured.snapshot()
    for headers in ({}, {"x-millpond-request": ""}, {"x-requested-with": "XMLHttpRequest"}):
        answer = await client.post("/topics", json={"name": "new"}, headers=headers)
        assert code(answer) == (403, "UnprovenOrigin")
    assert code(await client.delete("/session")) == (403, "UnprovenOrigin")
    for content in (
        "text/plain",
        "application/x-www-form-urlencoded",
    ):  # what a form of another site can send
        headers = {"content-type": content}
        answer = await client.post(f"/topics/{TOPIC}/produce", content=b"csrf_token=x", headers=headers)
        assert code(answer) == (403, "UnprovenOrigin")
    assert await secured.snapshot() == before
    assert (await client.post("/topics", json={"name": "new"}, headers=BY_SCRIPT)).status_code == 200

    async with browser(secured.broker) as other:
        await log_in(other)
        foreign = (await other.get("/session")).json()["csrf_token"]
    for token in (None, "", "x", foreign):
        form = {} if token is None else {"csrf_token": token}
        answer = await client.post("/session/logout", data=form | {"next": "/"})
        assert code(answer) == (403, "UnprovenOrigin")
    assert (await client.get("/topics")).status_code == 200


async def test_a_page_of_another_origin_is_refused(secured, client):
    await secured.allow("bob", "CREATE T new")
    await log_in(client)
    for origin in ("http://elsewhere", "null"):
        headers = {**BY_SCRIPT, "origin": origin}
        assert code(await client.post("/topics", json={"name": "new"}, headers=headers)) == (
            403,
            "ForeignOrigin",
        )
        assert code(await client.post("/session", data=BOB, headers={"origin": origin})) == (
            403,
            "ForeignOrigin",
        )
    own = {**BY_SCRIPT, "origin": f"http://{secured.broker.listeners['http']}"}
    assert (await client.post("/topics", json={"name": "new"}, headers=own)).status_code == 200


async def test_a_browser_is_not_sent_to_an_owner_that_would_not_get_its_cookie(secured, client, monkeypatch):
    async def fail(*_, **__):
        raise NotOwner(owner_http="there:8000")

    monkeypatch.setattr(MessageWriter, "submit", fail)
    await secured.allow("bob", f"WRITE T {TOPIC}")
    await log_in(client)
    path = f"/topics/{TOPIC}/produce/0"
    answer = await client.post(path, content=b"x", headers=BY_SCRIPT)
    assert (code(answer), answer.json()["retriable"]) == ((421, "NotOwner"), False)
    assert "http://there:8000 owns it" in answer.json()["message"]
    assert "location" not in answer.headers
    assert answer.json()["details"] == {"owner_http": "there:8000"}
    user = {"authorization": await secured.user(f"WRITE T {TOPIC}")}
    async with browser(secured.broker) as other:
        assert (await other.post(path, content=b"x", headers=user)).status_code == 307


async def test_two_proofs_are_refused_even_if_both_are_right(secured, client):
    user = await secured.user()
    await log_in(client)
    session_id = client.cookies[COOKIE]
    assert (await client.get("/topics", headers={"authorization": user})).status_code == 401
    assert (await client.get("/session", headers={"authorization": user})).status_code == 401
    twice = {"cookie": f"{COOKIE}={session_id}; {COOKIE}={session_id}"}
    async with browser(secured.broker) as other:
        assert (await other.get("/topics", headers=twice)).status_code == 401
        assert (await other.get("/session", headers={"authorization": user})).json()["method"] == "token"
        assert (await other.get("/session", headers={"authorization": "Bearer x"})).status_code == 401


async def test_a_redirect_leads_to_a_path_of_this_broker_only(secured, client):
    for path in ("https://elsewhere/", "//elsewhere", "/\\elsewhere", "\\\\elsewhere", "topics", "", "/a b"):
        for field in ("next", "failed"):
            answer = await client.post("/session", data={**BOB, field: path or "x"})
            assert (answer.status_code, "location" in answer.headers) == (400, False)
    await log_in(client)
    token = (await client.get("/session")).json()["csrf_token"]
    answer = await client.post("/session/logout", data={"csrf_token": token, "next": "//elsewhere"})
    assert (answer.status_code, (await client.get("/topics")).status_code) == (400, 200)


@for_each("path", ["/", "/console/", "/a?b=c&d#e", "/a//b", "/%5Cx"])
def test_a_local_path_is_taken_as_it_is(path):
    assert local_path(path) == path


@for_each(
    "path", ["", "x", "//x", "/\\x", "/a\\b", "/\tx", "/x\n", "/é", "http:x", " /x", "/\r\nset-cookie: x"]
)
def test_another_path_is_refused(path):
    with pytest.raises(InvalidRequest):
        local_path(path)


# -- the end of a session --------------------------------------------------------------------------------------------


async def test_a_session_ends_when_it_is_idle_and_after_twelve_hours(secured, client, clock):
    await log_in(client)
    clock.advance(IDLE_MS - 1)
    assert (await client.get("/topics")).status_code == 200
    clock.advance(IDLE_MS)
    assert code(await client.get("/topics")) == (401, "AuthenticationFailed")
    await log_in(client)
    for _ in range(LIFETIME_MS // (IDLE_MS // 2) - 1):
        clock.advance(IDLE_MS // 2)
        assert (await client.get("/session")).json()["principal"] == "User:bob"
    clock.advance(IDLE_MS // 2)
    assert "principal" not in (await client.get("/session")).json()


async def test_a_changed_password_ends_the_sessions_of_its_user(secured, client):
    token = await secured.user(name="bob")
    await log_in(client)
    async with browser(secured.broker) as other:
        await log_in(other, token=token.removeprefix("Bearer "))
        await put_password(secured.broker, "another password")
        assert [(await each.get("/topics")).status_code for each in (client, other)] == [401, 401]


async def test_an_administrator_ends_the_sessions_of_a_user(secured, client):
    await log_in(client)
    admin = {"authorization": await secured.admin()}
    async with browser(secured.broker) as other:
        for ended in (1, 0):
            answer = await other.delete("/security/users/bob/sessions", headers=admin)
            assert answer.json() == {"ended": ended}
    assert code(await client.get("/topics")) == (401, "AuthenticationFailed")


async def test_a_stream_ends_with_its_session(secured, client):
    await secured.allow("bob", f"READ T {TOPIC}")
    await log_in(client)
    async with client.stream("GET", f"/topics/{TOPIC}/stream") as answer:
        lines = (line async for line in answer.aiter_lines() if line)
        assert json.loads(await anext(lines))["value"] == "first"
        assert (await client.delete("/session", headers=BY_SCRIPT)).status_code == 204
        secured.broker.interfaces.web._site.guards.sweep()
        [last] = [json.loads(line) async for line in lines]
    assert last["error"]["code"] == "AuthenticationFailed"


async def test_a_logout_ends_the_session_on_a_second_broker(tmp_path):
    settings = {"security": True, "super_users": (ADMIN,), "password_iterations": ITERATIONS}
    async with near_brokers(tmp_path, 2, **settings, kafka_listen="", grpc_listen="") as near:
        first, second = near.brokers
        await put_password(first)
        async with browser(first) as client, browser(second) as other:
            await log_in(client)
            session = {"cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
            assert (await other.get("/session", headers=session)).json()["principal"] == "User:bob"
            assert (await client.delete("/session", headers=BY_SCRIPT)).status_code == 204
            async with asyncio.timeout(60):
                while (await other.get("/topics", headers=session)).status_code != 401:
                    await asyncio.sleep(0.02)
            await second.security.refresh()
            await log_in(other)
            headers = {"cookie": f"{COOKIE}={other.cookies[COOKIE]}"}
            assert (await client.get("/topics", headers=headers)).status_code == 200


# -- around it -------------------------------------------------------------------------------------------------------


async def test_over_tls_the_cookie_has_its_prefix_and_is_secure(tmp_path):
    pki = Pki(tmp_path)
    async with secured_broker(http=True, password_iterations=ITERATIONS, **pki.settings()) as secured:
        await put_password(secured.broker)
        base = f"https://localhost:{secured.broker.listeners['http'].rpartition(':')[2]}"
        async with httpx.AsyncClient(base_url=base, verify=pki.client_context(), timeout=60) as client:
            answer = await client.post("/session", json=BOB)
            name = f"__Host-{COOKIE}"
            session_id = client.cookies[name]
            assert answer.headers["set-cookie"] == (
                f"{name}={session_id}; Path=/; HttpOnly; SameSite=Strict; Secure"
            )
            assert (await client.get("/topics")).status_code == 200
            client.cookies.clear()
            without = {"cookie": f"{COOKIE}={session_id}"}
            assert code(await client.get("/topics", headers=without)) == (401, "NotAuthenticated")


async def test_the_id_of_a_session_is_in_no_log_and_no_error(secured, client, caplog, monkeypatch):
    for logger in ("millpond", "uvicorn", "asyncio"):
        caplog.set_level("DEBUG", logger)
    await log_in(client)
    session_id = client.cookies[COOKIE]
    texts = [(await client.get("/session")).text, (await client.get("/unknown")).text]
    texts.append((await client.post("/topics", json={"name": "new"})).text)
    headers = {"cookie": f"{COOKIE}={session_id}x"}
    async with browser(secured.broker) as other:
        texts.append((await other.get("/topics", headers=headers)).text)

    async def fail(*_):
        raise RuntimeError("unexpected")

    monkeypatch.setattr(Sessions, "find", fail)
    failed = await client.get("/topics")
    assert (failed.status_code, "unexpected error in HTTP request" in caplog.text) == (500, True)
    records = "\n".join(f"{each.getMessage()} {each.__dict__} {each.exc_text}" for each in caplog.records)
    for secret in (session_id, session_id[4:40]):
        assert secret not in "\n".join(texts) + failed.text
        for line in records.splitlines():
            assert secret not in line, line


async def test_without_security_there_are_no_sessions():
    async with running_broker(http=True) as broker, browser(broker) as client:
        shown = (await client.get("/session")).json()
        assert (shown["security"], shown["principal"]) == (False, "User:ANONYMOUS")
        assert shown["rights"]["super_user"]
        assert (await client.post("/session", json=BOB)).status_code == 400
        assert (await client.get("/session/oidc")).status_code == 400
        assert (await client.get("/session/oidc/callback")).status_code == 400
        assert (await client.delete("/session")).status_code == 204
        assert (await client.post("/session/logout", data={"next": "/"})).status_code == 303
