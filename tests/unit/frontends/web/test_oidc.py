"""Login at an identity provider: a real one on loopback, and everything that a browser or a provider can get wrong."""

import threading
import time
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from click.testing import CliRunner
from tests.tls import Pki
from tests.unit.frontends.secured import secured_broker
from tests.unit.security import issuer
from tests.unit.security.identity_provider import CLIENT_ID, CLIENT_SECRET, running_provider

from millpond.cli.settings import settings as show_settings
from millpond.model.errors import InvalidSettings
from millpond.security import jwks, oidc
from millpond.settings import Settings, load
from millpond.testing import SimulatedClock, running_broker

SESSION, LOGIN = "millpond-session", "millpond-login"


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    pki = Pki(tmp_path_factory.mktemp("provider"))
    with pytest.MonkeyPatch.context() as patch, running_provider(pki) as running:
        patch.setenv("SSL_CERT_FILE", str(pki.ca_path))  # what brokers trust
        yield running


@pytest.fixture(autouse=True)
def as_it_should(provider):
    """Tests change what the provider sends."""
    provider.claims, provider.description, provider.signing, provider.status = {}, {}, {}, 200


def settings_of(provider):
    return {
        "oidc_issuer": provider.issuer,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
    }


@asynccontextmanager
async def opened(provider, **settings):
    clock = SimulatedClock()
    async with secured_broker(http=True, clock=clock, **settings_of(provider), **settings) as secured:
        secured.clock = clock
        async with browser(secured) as client:
            yield secured, client


def browser(secured):
    return httpx.AsyncClient(base_url=f"http://{secured.broker.listeners['http']}", timeout=60)


async def begin(client, **query):
    """Returns the URL of the provider."""
    answer = await client.get("/session/oidc", params=query)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def log_in(client, provider, *, begin_with=None, **changes):
    """Follows the browser through the provider; returns the response to the callback."""
    return await client.get(provider.authorize(await begin(client, **(begin_with or {})), **changes))


async def principal(client):
    return (await client.get("/session")).json().get("principal")


def code(answer):
    return answer.status_code, answer.json()["code"]


async def test_a_user_logs_in_at_the_provider(provider, caplog):
    for logger in ("millpond", "uvicorn", "asyncio"):
        caplog.set_level("DEBUG", logger)
    async with opened(provider) as (secured, client):
        assert (await client.get("/session")).json()["login"]["oidc"] == "/session/oidc"
        url = await begin(client, next="/console/?a=1&b")
        query = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()}
        callback = f"http://{secured.broker.listeners['http']}/session/oidc/callback"
        assert (query["redirect_uri"], query["scope"]) == (callback, "openid")
        assert len({query["state"], query["nonce"], query["code_challenge"]}) == 3
        [cookie] = [each for each in client.cookies.jar if each.name == LOGIN]
        assert cookie.has_nonstandard_attr("HttpOnly")
        assert (cookie.get_nonstandard_attr("SameSite"), cookie.path) == ("Lax", "/")
        assert 0 < cookie.expires - time.time() <= 600
        page = await client.get(provider.authorize(url))
        assert (page.status_code, 'url=/console/?a=1&amp;b"' in page.text) == (200, True)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert LOGIN not in client.cookies
        shown = (await client.get("/session")).json()
        assert (shown["principal"], shown["method"]) == ("User:alice", "oidc")
        session_id = client.cookies[SESSION]
        await log_in(client, provider)
        assert client.cookies[SESSION] != session_id
        assert (await client.get("/topics", headers={"cookie": f"{SESSION}={session_id}"})).status_code == 401
        assert "session opened" in caplog.text
        ours = [
            each for each in caplog.records if not each.name.startswith("http")
        ]  # those are of the browser
        records = "\n".join(f"{each.getMessage()} {each.__dict__}" for each in ours)
        secrets = (
            CLIENT_SECRET,
            session_id,
            client.cookies[SESSION],
            query["state"],
            query["nonce"],
            "code0",
        )
        assert not [each for each in secrets if each in records]


async def test_a_callback_that_is_not_of_this_browsers_login_is_refused(provider, caplog):
    caplog.set_level("INFO", "millpond.security.audit")
    async with opened(provider) as (secured, client), browser(secured) as other, browser(secured) as third:
        back = provider.authorize(await begin(client))
        await begin(other)  # another browser, with its own login
        sealed = client.cookies[LOGIN]
        payload, _, signature = sealed.partition(".")
        forged = [f"{payload[:-2]}xx.{signature}", f"{payload}.{signature[:-2]}xx", payload, "é", 9000 * "x"]
        requests = len(provider.requests)
        answers = [
            await third.get(back),  # without a login
            await other.get(back),
            await client.get(back.replace("state=", "state=x")),
            await client.get(back, params={"error": "access_denied", "state": "x"}),
            await client.get(back, params={"error": "access_denied"}),
        ]
        for each in forged:
            headers = {"cookie": f"{LOGIN}={each}".encode("latin-1")}
            answers.append(await third.get(back, headers=headers))
        twice = {"cookie": f"{LOGIN}={sealed}; {LOGIN}={sealed}"}
        answers.append(await third.get(back, headers=twice))
        assert [code(each) for each in answers] == len(answers) * [(401, "AuthenticationFailed")]
        assert caplog.text.count("authentication failed") == len(answers)
        assert len(provider.requests) == requests  # none of them was worth a question
        assert [await principal(each) for each in (client, other, third)] == 3 * [None]
        assert not any("set-cookie" in each.headers for each in answers)
        assert (await client.get(back)).status_code == 200


async def test_the_callback_of_a_login_ends_it_whatever_it_says(provider):
    async with opened(provider) as (_, client):
        requests = None
        for path, status in (("", 401), ("/login?failed", 303)):
            for change in (
                lambda back: back.replace("iss=https", "iss=http"),
                lambda back: back.replace("code=", "c="),
                lambda back: f"{back}&error=access_denied",
            ):
                url = await begin(client, failed=path)
                requests = requests or len(provider.requests)
                assert LOGIN in client.cookies
                answer = await client.get(change(provider.authorize(url)))
                assert (answer.status_code, LOGIN in client.cookies) == (status, False)
        assert len(provider.requests) == requests  # no code was exchanged
        provider.status = 500
        assert code(await log_in(client, provider)) == (503, "IdentityProviderUnavailable")
        assert LOGIN not in client.cookies
        back = provider.authorize(await begin(client, failed="/login?failed"))
        answer = await client.get(back.replace("state=", "state=x"))  # of another page
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?failed")
        assert LOGIN in client.cookies


async def test_a_login_ends_the_session_that_the_browser_had_when_it_began(provider):
    """A browser does not send a cookie with `SameSite=Strict` when the provider sends it back."""
    async with opened(provider) as (secured, client), browser(secured) as returning:
        await log_in(client, provider)
        old = {"cookie": f"{SESSION}={client.cookies[SESSION]}"}
        back = provider.authorize(await begin(client))
        login = {"cookie": f"{LOGIN}={client.cookies[LOGIN]}"}
        async with browser(secured) as other:
            assert (await other.get("/topics", headers=old)).status_code == 200
            assert (await returning.get(back, headers=login)).status_code == 200
            assert (await other.get("/topics", headers=old)).status_code == 401
        assert await principal(returning) == "User:alice"


async def test_paths_that_do_not_fit_into_a_cookie_are_refused(provider):
    async with opened(provider) as (_, client):
        await log_in(client, provider)  # the digest of a session takes room, too
        longest = "/" + 999 * "x"
        await begin(client, next=longest, failed=longest)
        [cookie] = [each for each in client.cookies.jar if each.name == LOGIN]
        assert len(f"__Host-{LOGIN}={cookie.value}") <= 4096
        for query in ({"next": longest + "x"}, {"failed": longest + "x"}):
            assert code(await client.get("/session/oidc", params=query)) == (400, "InvalidRequest")
        quotes = "/" + 999 * '"'  # JSON escapes them
        answer = await client.get("/session/oidc", params={"next": quotes, "failed": quotes})
        assert (code(answer), "set-cookie" in answer.headers) == ((400, "InvalidRequest"), False)


async def test_a_code_works_once(provider):
    async with opened(provider) as (secured, client), browser(secured) as thief:
        back = provider.authorize(await begin(client))
        stolen = {"cookie": f"{LOGIN}={client.cookies[LOGIN]}"}
        assert (await client.get(back)).status_code == 200
        assert code(await client.get(back)) == (401, "AuthenticationFailed")  # the browser has lost the state
        assert code(await thief.get(back, headers=stolen)) == (401, "AuthenticationFailed")
        assert await principal(thief) is None


async def test_a_login_takes_ten_minutes_at_most(provider):
    async with opened(provider) as (secured, client):
        for wait_ms, status in ((oidc.LOGIN_MS - 1, 200), (oidc.LOGIN_MS, 401)):
            url = await begin(client)
            headers = {"cookie": f"{LOGIN}={client.cookies[LOGIN]}"}
            provider.claims = {"exp": int(secured.clock.now_ms() / 1000) + 3600}
            secured.clock.advance(wait_ms)
            async with browser(secured) as other:  # its own clock does not delete the cookie
                assert (await other.get(provider.authorize(url), headers=headers)).status_code == status


async def test_an_id_token_that_breaks_a_rule_is_refused(provider):
    wrong = [
        {"nonce": "another"},
        {"nonce": ...},
        {"aud": "another"},
        {"aud": ...},
        {"aud": [CLIENT_ID, "another"], "azp": "another"},
        {"iss": "https://another.example"},
        {"exp": 1},
        {"exp": ...},
        {"sub": ...},
        {"sub": "*"},
        {"sub": ["alice"]},
    ]
    async with opened(provider) as (_, client):
        for claims in wrong:
            provider.claims = claims
            answer = await log_in(client, provider)
            assert code(answer) == (401, "AuthenticationFailed"), claims
        provider.claims = {}
        for signing in ({"header": {"kid": "unknown"}}, {"header": {"alg": "none"}}, {"name": "ec other"}):
            provider.signing = signing
            assert code(await log_in(client, provider)) == (401, "AuthenticationFailed"), signing
        assert await principal(client) is None
        provider.signing, provider.claims = {}, {"aud": ["another", CLIENT_ID]}
        assert (await log_in(client, provider)).status_code == 200


async def test_the_provider_refuses_a_login_with_another_verifier_or_redirect(provider):
    async with opened(provider) as (_, client):
        for changes in ({"code_challenge": "another"}, {"redirect_uri": None}):
            url = await begin(client)
            back = provider.authorize(url, **{name: value for name, value in changes.items() if value})
            if changes.get("redirect_uri", "") is None:
                for asked in provider.codes.values():
                    asked["redirect_uri"] = "https://elsewhere/"
            assert code(await client.get(back)) == (401, "AuthenticationFailed"), changes
        assert await principal(client) is None


async def test_the_claim_of_the_settings_names_the_user(provider):
    provider.description = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    provider.claims = {"email": "alice@example.com", "email_verified": True}
    own = {
        "oauth_subject_claim": "email",
        "oidc_scopes": "openid email",
        "oidc_redirect_url": "https://console.example/session/oidc/callback",
    }
    async with opened(provider, **own) as (_, client):
        url = await begin(client)
        assert parse_qs(urlsplit(url).query)["scope"] == ["openid email"]
        back = provider.authorize(url)
        assert back.startswith("https://console.example/session/oidc/callback?")
        assert (await client.get(back.partition("console.example")[2])).status_code == 200
        assert await principal(client) == "User:alice@example.com"
        for verified in (False, "true", ...):
            provider.claims = {"email": "bob@example.com", "email_verified": verified}
            back = provider.authorize(await begin(client))
            assert (await client.get(back.partition("console.example")[2])).status_code == 401


async def test_a_provider_that_fails_is_an_error_of_its_own_and_is_not_asked_at_once_again(provider, caplog):
    async with opened(provider) as (secured, client):
        for wrong in (
            {"issuer": "https://another.example"},
            {"token_endpoint": "http://localhost/token"},
            {"jwks_uri": None},
        ):
            provider.description = wrong
            requests = len(provider.requests)
            for _ in range(3):
                answer = await client.get("/session/oidc")
                assert code(answer) == (503, "IdentityProviderUnavailable")
            assert len(provider.requests) == requests + 1
            secured.clock.advance(oidc.RETRY_MS)
        provider.description = {}
        url = await begin(client, failed="/login?failed")
        provider.status = 500
        answer = await client.get(provider.authorize(url))
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?failed")
        assert LOGIN not in client.cookies
        assert code(await log_in(client, provider)) == (503, "IdentityProviderUnavailable")
        assert caplog.text.count("identity provider failed") == 5
        assert CLIENT_SECRET not in caplog.text
        for path in ("https://elsewhere", "//elsewhere"):
            for name in ("next", "failed"):
                assert (await client.get("/session/oidc", params={name: path})).status_code == 400


async def test_requests_to_the_provider_have_threads_of_their_own(provider, monkeypatch, tmp_path):
    used = {}

    def recorded(function):
        def run(*args, **options):
            used.setdefault(function.__name__, threading.current_thread().name.rpartition("_")[0])
            return function(*args, **options)

        return run

    for module, name in ((oidc, "read_url"), (oidc, "send"), (jwks, "read_file")):
        monkeypatch.setattr(module, name, recorded(getattr(module, name)))
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.jwks())
    jwts = {"oauth_issuer": issuer.ISSUER, "oauth_audience": issuer.AUDIENCE, "oauth_jwks": str(keys)}
    async with opened(provider, **jwts) as (_, client):
        assert (await log_in(client, provider)).status_code == 200
        client.cookies.clear()
        await client.get("/topics", headers={"authorization": f"Bearer {issuer.token()}"})
    assert used == dict.fromkeys(("read_url", "send", "read_file"), "millpond-identity")


# -- settings --------------------------------------------------------------------------------------------------------


COMPLETE = {"oidc_issuer": "https://i.example", "oidc_client_id": "c", "oidc_client_secret": "hush"}


async def test_incomplete_settings_keep_a_broker_from_starting():
    wrong = [{name: text for name, text in COMPLETE.items() if name != missing} for missing in COMPLETE]
    wrong += [
        {**COMPLETE, "oidc_issuer": "http://i.example"},
        {**COMPLETE, "oidc_issuer": "https://i.example?x"},
        {**COMPLETE, "oidc_scopes": "email"},
        {**COMPLETE, "oidc_redirect_url": "i.example"},
        {"oidc_redirect_url": "https://i.example/session/oidc/callback"},
    ]
    for settings in wrong:
        with pytest.raises(InvalidSettings, match="oidc_") as refused:
            async with running_broker(security=True, **settings):
                pass
        assert "hush" not in str(refused.value)
    assert Settings(**COMPLETE).oidc() is not None
    assert Settings().oidc() is None


def test_the_secret_is_taken_from_the_environment_and_the_file_and_not_shown(tmp_path):
    file = tmp_path / "millpond.toml"
    file.write_text('oidc_client_secret = "hush"')
    found = [load({}, {}, file), load({}, {"MILLPOND_OIDC_CLIENT_SECRET": "hush"})]
    assert [each.oidc_client_secret for each in found] == ["hush", "hush"]
    assert "hush" not in repr(found) + repr(Settings(**COMPLETE).oidc())
    with pytest.raises(InvalidSettings, match="other users of the machine") as refused:
        load({"oidc_client_secret": "hush"}, {})
    assert "hush" not in str(refused.value)
    shown = CliRunner().invoke(show_settings, ["--json"], env={"MILLPOND_OIDC_CLIENT_SECRET": "hush"})
    assert (shown.exit_code, "(hidden)" in shown.output, "hush" in shown.output) == (0, True, False)
