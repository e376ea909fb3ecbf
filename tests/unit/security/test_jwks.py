"""JWK sets: which keys are kept, when the set is loaded again, and from where."""

import asyncio
import http.server
import json
import ssl
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.issuer import jwk, jwks
from tests.unit.security.proofs import Clock
from tests.unit.security.x509_certificates import pem_files

from millpond.model.clock import SystemClock
from millpond.model.errors import InvalidSettings
from millpond.security import jwks as module
from millpond.security.jwks import JwkSet, jwk_set, parse_keys, read_url

HOUR_MS = 3_600_000


async def at_once(work):
    return work()


class Source:
    """What the issuer serves; counts how often it was asked."""

    def __init__(self, *data):
        self.data = data[0] if data else jwks()
        self.fetched = 0

    def __call__(self):
        self.fetched += 1
        if isinstance(self.data, Exception):
            raise self.data
        return self.data


def loading(source, clock, **options):
    return JwkSet(source, clock=clock, off_loop=at_once, **options)


# -- keys -----------------------------------------------------------------------------------------------------


def test_keys_are_bound_to_algorithms():
    assert set(parse_keys(jwks())) == {
        *[("rsa", "RS256"), ("rsa", "PS256"), ("ec", "ES256"), ("ed", "EdDSA"), ("ed", "Ed25519")]
    }


@pytest.mark.parametrize(
    "member",
    [
        jwk("rsa", use="enc"),
        jwk("rsa", key_ops=["encrypt"]),
        jwk("rsa", key_ops="verify"),
        jwk("rsa", alg="RS512"),
        jwk("rsa", alg="HS256"),
        jwk("rsa", kid=None),
        jwk("rsa", kid=1),
        jwk("rsa", n="!"),
        jwk("rsa", n=1),
        {"kid": "x", "kty": "RSA"},
        jwk("rsa-small"),
        jwk("ec384"),
        jwk("ec", crv="P-384"),
        jwk("ec", crv=["P-256"]),
        jwk("ec", x="AAAA"),
        jwk("ed", crv="X25519"),
        jwk("ed", x="AAAA"),
        {"kid": "x", "kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
        {"kid": "x", "kty": "oct", "k": "c2VjcmV0", "crv": "P-256"},
        {"kid": "x", "kty": "PQC", "crv": "P-256"},
        *[{}, [], None, 1, "x"],
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_key_that_cannot_verify_is_ignored(member):
    with pytest.raises(ValueError, match="no key"):
        parse_keys(jwks(member))
    assert set(parse_keys(jwks(member, jwk("ed", kid="good")))) == {("good", "EdDSA"), ("good", "Ed25519")}


def test_the_first_of_two_keys_with_one_id_is_kept():
    keys = parse_keys(jwks(jwk("ed-one", kid="same"), jwk("ed-two", kid="same"), jwk("rsa", kid="same")))
    assert keys["same", "EdDSA"].as_dict()["x"] == jwk("ed-one")["x"]
    assert keys["same", "RS256"].as_dict()["n"] == jwk("rsa")["n"]


def test_no_private_part_is_kept():
    keys = parse_keys(jwks(jwk("ed", d="AAAA", k="AAAA")))
    assert not keys["ed", "EdDSA"].is_private


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys":1}', b'{"keys":[]}', b"\xff", b"[" * 100_000, b" " * ((1 << 20) + 1)],
)
def test_what_is_no_set_is_an_error(data):
    with pytest.raises(ValueError):  # noqa: PT011  # several texts
        parse_keys(data)


MEMBERS = st.sampled_from([*jwk("rsa"), *jwk("ec"), "use", "alg", "key_ops"])
VALUES = st.none() | st.integers() | st.text(max_size=4) | st.lists(st.text(max_size=2), max_size=2)


@given(st.sampled_from(["rsa", "ec", "ed"]), st.dictionaries(MEMBERS, VALUES, max_size=3))
def test_random_members_are_kept_or_ignored(name, changes):
    assert ("good", "EdDSA") in parse_keys(jwks(jwk(name, **changes), jwk("ed", kid="good")))


# -- loading --------------------------------------------------------------------------------------------------


async def test_a_set_is_loaded_once_and_then_each_hour():
    source, clock = Source(), Clock()
    keys = loading(source, clock)
    for _ in range(3):
        assert await keys.key("rsa", "RS256")
    clock.ms += HOUR_MS - 1
    assert await keys.key("rsa", "RS256")
    assert source.fetched == 1
    clock.ms += 1
    assert await keys.key("rsa", "RS256")
    assert source.fetched == 2


async def test_an_unknown_id_loads_at_most_once_in_ten_seconds():
    source, clock = Source(), Clock()
    keys = loading(source, clock)
    assert await keys.key("rsa", "RS256")
    clock.ms += 10_000
    for _ in range(5):
        assert await keys.key("new", "RS256") is None
    assert source.fetched == 2
    source.data = jwks(jwk("rsa", kid="new"))
    clock.ms += 9_999
    assert await keys.key("new", "RS256") is None
    clock.ms += 1
    assert await keys.key("new", "RS256")
    assert source.fetched == 3


async def test_a_key_that_the_issuer_has_removed_is_removed():
    source, clock = Source(), Clock()
    keys = loading(source, clock)
    assert await keys.key("rsa", "RS256")
    source.data = jwks(jwk("ed"))
    clock.ms += HOUR_MS
    assert await keys.key("rsa", "RS256") is None


@pytest.mark.parametrize("failure", [OSError("away"), b"no set", b'{"keys":[]}', TimeoutError("slow")])
async def test_while_the_issuer_fails_the_last_set_is_used_for_a_day(failure, caplog):
    source, clock = Source(), Clock()
    keys = loading(source, clock)
    assert await keys.key("rsa", "RS256")
    source.data = failure
    clock.ms += 24 * HOUR_MS
    assert await keys.key("rsa", "RS256")
    assert [record.getMessage() for record in caplog.records] == ["loading the JWK set failed; will retry"]
    clock.ms += 1
    assert await keys.key("rsa", "RS256") is None
    source.data = jwks()
    clock.ms += 10_000
    assert await keys.key("rsa", "RS256")


async def test_a_failed_load_is_tried_again_after_ten_seconds():
    source, clock = Source(OSError("away")), Clock()
    keys = loading(source, clock)
    for _ in range(3):
        assert await keys.key("rsa", "RS256") is None
    assert source.fetched == 1
    source.data = jwks()
    clock.ms += 10_000
    assert await keys.key("rsa", "RS256")
    assert source.fetched == 2


async def test_a_slow_issuer_delays_only_callers_without_a_key():
    source, clock, released = Source(), Clock(), asyncio.Event()
    released.set()

    async def off_loop(work):
        await released.wait()
        return work()

    keys = JwkSet(source, clock=clock, off_loop=off_loop)
    assert await keys.key("rsa", "RS256")
    released.clear()
    source.data = jwks(jwk("rsa"), jwk("ed", kid="new"))
    clock.ms += HOUR_MS
    first, has_key, second = (
        asyncio.create_task(keys.key(*wanted))
        for wanted in (("rsa", "RS256"), ("rsa", "RS256"), ("new", "EdDSA"))
    )
    await asyncio.sleep(0)
    assert [task.done() for task in (first, has_key, second)] == [False, True, False]
    released.set()
    assert await first
    assert await has_key
    assert await second, "it waited for the load of the first"
    assert source.fetched == 2


async def test_a_slow_issuer_that_fails_is_asked_once_for_all_who_wait():
    source, clock, released = Source(OSError("away")), Clock(), asyncio.Event()

    async def off_loop(work):
        await released.wait()
        clock.ms += module.RETRY_MS  # what it took
        return work()

    keys = JwkSet(source, clock=clock, off_loop=off_loop)
    waiting = [asyncio.create_task(keys.key("rsa", "RS256")) for _ in range(50)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    released.set()
    assert (await asyncio.gather(*waiting[1:]), source.fetched) == (49 * [None], 1)
    clock.ms += module.RETRY_MS - 1
    assert (await keys.key("rsa", "RS256"), source.fetched) == (None, 1)
    clock.ms += 1
    assert (await keys.key("rsa", "RS256"), source.fetched) == (None, 2)


async def test_a_caller_that_goes_away_does_not_block_the_next():
    source, clock, released = Source(), Clock(), asyncio.Event()

    async def off_loop(work):
        await released.wait()
        return work()

    keys = JwkSet(source, clock=clock, off_loop=off_loop)
    task = asyncio.create_task(keys.key("rsa", "RS256"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    released.set()
    clock.ms += 10_000
    assert await keys.key("rsa", "RS256")


# -- sources --------------------------------------------------------------------------------------------------


async def test_a_file_is_read_again_every_ten_seconds(tmp_path):
    path, clock = tmp_path / "keys.json", Clock()
    path.write_bytes(jwks(jwk("rsa")))
    keys = jwk_set(str(path), clock=clock, off_loop=asyncio.to_thread)
    assert await keys.key("rsa", "RS256")
    path.write_bytes(jwks(jwk("ed")))
    clock.ms += 9_999
    assert await keys.key("rsa", "RS256")
    clock.ms += 1
    assert await keys.key("rsa", "RS256") is None


async def test_a_file_that_is_missing_or_too_large_has_no_keys(tmp_path, caplog):
    clock, path = Clock(), tmp_path / "keys.json"
    keys = jwk_set(str(path), clock=clock, off_loop=at_once)
    assert await keys.key("rsa", "RS256") is None
    path.write_bytes(jwks() + b" " * (1 << 20))
    clock.ms += 10_000
    assert await keys.key("rsa", "RS256") is None
    assert len(caplog.records) == 2


@pytest.mark.parametrize("source", ["http://issuer.example/keys", "file:///keys", "https://", "HTTP://x/"])
def test_another_url_is_refused(source):
    with pytest.raises(InvalidSettings):
        jwk_set(source, clock=Clock(), off_loop=at_once)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status, headers, body = self.server.responses[self.path]
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@contextmanager
def serving(folder, responses):
    """An https server. Yields its address and a context that trusts it."""
    chain, private = pem_files(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, private)
    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.responses = responses
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}", ssl.create_default_context(cafile=chain)
        finally:
            server.shutdown()
            thread.join()


def test_a_set_is_read_from_an_https_server(tmp_path):
    responses = {"/keys?x=1": (200, {}, jwks()), "/": (200, {}, b"{}")}
    with serving(tmp_path, responses) as (address, context):
        assert json.loads(read_url(f"{address}/keys?x=1", SystemClock(), context)) == json.loads(jwks())
        assert read_url(address, SystemClock(), context) == b"{}"


@pytest.mark.parametrize("status", [201, 204, 301, 302, 303, 307, 308, 404, 500])
def test_a_redirect_and_every_other_status_is_an_error(tmp_path, status):
    responses = {"/keys": (status, {"Location": "/other"}, b""), "/other": (200, {}, jwks())}
    with serving(tmp_path, responses) as (address, context), pytest.raises(ValueError, match=str(status)):
        read_url(f"{address}/keys", SystemClock(), context)


def test_a_server_without_a_trusted_certificate_is_an_error(tmp_path):
    with serving(tmp_path, {"/keys": (200, {}, jwks())}) as (address, _), pytest.raises(ssl.SSLError):
        read_url(f"{address}/keys", SystemClock())


def test_no_more_than_a_mebibyte_is_read(tmp_path):
    with serving(tmp_path, {"/keys": (200, {}, b" " * (3 << 20))}) as (address, context):
        data = read_url(f"{address}/keys", SystemClock(), context)
    assert module.SET_BYTES_MAX < len(data) <= module.SET_BYTES_MAX + (1 << 16)
    with pytest.raises(ValueError, match="larger"):
        parse_keys(data)


def test_a_server_that_takes_too_long_is_an_error(tmp_path):
    clock = Clock()
    clock.monotonic_ms = iter(range(0, 10**9, 3_000)).__next__
    with (
        serving(tmp_path, {"/keys": (200, {}, b" " * 500_000)}) as (address, context),
        pytest.raises(TimeoutError),
    ):
        read_url(f"{address}/keys", clock, context)
