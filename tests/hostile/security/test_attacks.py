"""Attacks on a secured broker, over the wire. `attacks.py` lists all of them, with the tests that lie elsewhere."""

import asyncio
import contextlib
import json
import re
import shutil
import ssl
import struct
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.hostile.security.attacks import ATTACKS
from tests.single_attempts import without_retries
from tests.tls import A_YEAR, NOW, Pki, close
from tests.unit.frontends.kafka.secured import PASSWORD, SETTINGS, Cluster, authenticate, log_in, shake
from tests.unit.frontends.kafka.wire import Client
from tests.unit.security.issuer import AUDIENCE, ISSUER, encoded, hmac_token, jwks, key, token
from tests.unit.security.proofs import Clock, ScramClient

from millpond.client import AsyncAdmin
from millpond.model.errors import MillpondError
from millpond.protocol import ErrorCode
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.metadata import MetadataRequest
from millpond.protocol.primitives import uvarint
from millpond.security.development_ca import issue_certificate
from millpond.security.scram import SCRAM_SHA_256, SCRAM_SHA_512
from millpond.testing import SimulatedClock, running_broker

ROOT = Path(__file__).parents[3]
HOUR_MS = 3_600_000
GIVE_UP_S = 60
TAGS = 20_000_000
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
PUBLIC_OF_THE_ISSUER = jwks()


def test_every_attack_has_tests():
    for attack, tests in ATTACKS.items():
        assert tests, attack
        for each in tests:
            path, _, name = each.partition("::")
            assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), each


@contextlib.asynccontextmanager
async def secured(**settings):
    async with running_broker(kafka=True, **SETTINGS, **settings) as broker:
        cluster = Cluster(broker)
        await cluster.user()
        yield cluster


def connect(cluster):
    return Client(cluster.broker.kafka.listener)


async def is_closed(client):
    try:
        return await asyncio.wait_for(client._reader.read(), GIVE_UP_S) == b""
    except ConnectionError:
        return True


async def check_served(cluster):
    async with connect(cluster) as client:
        assert (await log_in(client)).error_code == 0
        assert (await client.send(MetadataRequest(topics=[]), 9)).cluster_id


# -- SASL -----------------------------------------------------------------------------------------------------


async def test_a_recorded_login_is_of_no_use_again():
    """Both messages of a login that succeeded, sent again with the same nonce of the client: on another connection, and
    to renew the session of the same one."""
    clock = SimulatedClock()
    async with secured(clock=clock, max_reauth=HOUR_MS) as cluster, connect(cluster) as victim:
        scram = ScramClient()
        await shake(victim)
        challenge = bytes((await authenticate(victim, scram.first())).auth_bytes)
        final = scram.final(challenge)
        assert (await authenticate(victim, final)).error_code == 0
        clock.advance(2_000)
        async with connect(cluster) as attacker:
            for client in (attacker, victim):
                await shake(client)
                again = bytes((await authenticate(client, scram.first())).auth_bytes)
                assert again != challenge, "the server's half of the nonce is new"
                assert (await authenticate(client, final)).error_code == FAILED
                assert await is_closed(client)
        await check_served(cluster)


async def test_a_truncated_final_message_is_refused():
    async with secured() as cluster:
        for keep in (0, 1, 10, -45, -44, -4, -1):
            async with connect(cluster) as client:
                scram = ScramClient()
                await shake(client)
                challenge = bytes((await authenticate(client, scram.first())).auth_bytes)
                assert (await authenticate(client, scram.final(challenge)[:keep])).error_code == FAILED, keep
                assert await is_closed(client)


async def test_the_mechanism_cannot_be_switched():
    """Messages of another mechanism than the one that was announced; and a second announcement."""
    async with secured() as cluster:
        async with connect(cluster) as client:
            await shake(client, SCRAM_SHA_256)
            plain = await authenticate(client, f"\0alice\0{PASSWORD}".encode())
            assert plain.error_code == FAILED
        async with connect(cluster) as client:
            await shake(client, SCRAM_SHA_512)
            weaker = ScramClient(mechanism=SCRAM_SHA_256)
            challenge = bytes((await authenticate(client, weaker.first())).auth_bytes)
            assert (await authenticate(client, weaker.final(challenge))).error_code == FAILED
        async with connect(cluster) as client:
            await shake(client, SCRAM_SHA_512)
            await authenticate(client, ScramClient().first())
            assert (await shake(client, SCRAM_SHA_256)).error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert await is_closed(client)


async def test_twenty_million_tags_before_the_login_are_not_read():
    """In the header and in the body of every request that is read before the login. The frame that holds them all is
    refused by its length; one that only claims them ends where its bytes end."""
    tags = uvarint(TAGS)
    header = {False: b"", True: b"\0"}
    async with secured() as cluster:
        for api, version, body in ((18, 3, b"\2a\2b"), (36, 2, b"\2x")):
            head = struct.pack(">hhih", api, version, 1, -1)
            async with connect(cluster) as client:
                whole = len(head) + len(tags) + 2 * TAGS
                client._writer.write(struct.pack(">i", whole) + head + tags + b"\x63\0" * 1_000)
                assert await is_closed(client)
            for where in ("header", "body"):
                async with connect(cluster) as client:
                    filler = b"\x63\0" * 30_000
                    given = tags + filler if where == "header" else header[True] + body + tags + filler
                    await client.send_bytes(head + given)
                    assert await is_closed(client), (api, where)
        assert cluster.broker.kafka._held_bytes == 0
        await check_served(cluster)


# -- JWTs -----------------------------------------------------------------------------------------------------


def forged_tokens():
    claims = encoded({"iss": ISSUER, "aud": AUDIENCE, "sub": "admin", "exp": 1_800_000_600})
    for alg in ("none", "None", "NONE", ""):
        yield f"alg {alg!r}", f"{encoded({'alg': alg, 'kid': 'rsa'})}.{claims}."
    public = key("rsa").public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    yield "HS256 with the public key as PEM", hmac_token(pem)
    yield "HS256 with the JWK", hmac_token(json.dumps(json.loads(PUBLIC_OF_THE_ISSUER)["keys"][0]).encode())
    yield "a foreign kid", token("RS256", name="rsa-of-mallory", sub="admin")
    yield (
        "a foreign key under the issuer's kid",
        token("RS256", name="rsa-of-mallory", header={"kid": "rsa"}, sub="admin"),
    )
    for member, value in (
        ("jku", "https://mallory.example/jwks.json"),
        ("x5u", "https://mallory.example/chain.pem"),
        ("jwk", json.loads(jwks())["keys"][0]),
    ):
        forged = {"kid": "rsa", member: value}
        yield f"its own key by {member}", token("RS256", name="rsa-of-mallory", header=forged, sub="admin")


async def test_a_forged_jwt_is_refused_by_every_interface(tmp_path):
    (tmp_path / "jwks.json").write_bytes(PUBLIC_OF_THE_ISSUER)
    settings = {
        "sasl_mechanisms": ("OAUTHBEARER",),
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
        "oauth_jwks": str(tmp_path / "jwks.json"),
    }
    async with secured(http=True, clock=Fixed(), **settings) as cluster:
        base = f"http://{cluster.broker.listeners['http']}"
        async with httpx.AsyncClient(base_url=base, timeout=GIVE_UP_S) as web:
            assert await accepted(cluster, web, token("RS256")) == (True, True), "the right one is accepted"
            for name, text in forged_tokens():
                assert await accepted(cluster, web, text) == (False, False), name


class Fixed(Clock):
    """The time of the tokens; monotonic time does not matter."""


async def accepted(cluster, web, text):
    """Whether Kafka's interface and HTTP accept a token."""
    async with connect(cluster) as client:
        await shake(client, "OAUTHBEARER")
        response = await authenticate(client, f"n,,\x01auth=Bearer {text}\x01\x01".encode())
        by_kafka = response.error_code == 0 and response.auth_bytes == b""
        if not by_kafka and response.error_code == 0:
            assert bytes(response.auth_bytes) == b'{"status":"invalid_token"}'
            assert (await authenticate(client, b"\x01")).error_code == FAILED
    answer = await web.get("/topics", headers={"authorization": f"Bearer {text}"})
    assert answer.status_code in (200, 401)
    return by_kafka, answer.status_code == 200


# -- TLS ------------------------------------------------------------------------------------------------------


@pytest.fixture
def pki(tmp_path):
    return Pki(tmp_path)


@contextlib.asynccontextmanager
async def encrypted(pki, client_auth="none", **settings):
    async with running_broker(kafka=True, **SETTINGS, **pki.settings(client_auth), **settings) as broker:
        yield Cluster(broker)


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the openssl command is missing")


async def openssl(cluster, *options, sent=b"", patience_s=GIVE_UP_S):
    """Runs `openssl s_client` until it ends, and returns what it prints."""
    process = await asyncio.create_subprocess_exec(
        *("openssl", "s_client", "-connect", cluster.broker.kafka.listener, *options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await asyncio.wait_for(process.communicate(sent), patience_s)
    return printed.decode(errors="replace")


@needs_openssl
async def test_a_client_cannot_renegotiate(pki):
    """`R` at the start of a line tells s_client to renegotiate."""
    async with encrypted(pki) as cluster:
        printed = await openssl(cluster, "-tls1_2", sent=b"R\n")
        assert "RENEGOTIATING" in printed
        assert "no renegotiation" in printed
        _, writer = await open_tls(cluster, pki)
        await close(writer)


@needs_openssl
async def test_early_data_is_not_accepted(pki, tmp_path):
    """A session that could be resumed with early data says how much; without it a client cannot send any."""
    session, early = tmp_path / "session.pem", tmp_path / "early"
    early.write_bytes(b"early")
    async with encrypted(pki) as cluster:
        first = await openssl(cluster, "-tls1_3", "-sess_out", str(session), "-ign_eof", sent=b"\0\0\0\1x")
        assert "TLSv1.3" in first
        assert session.exists(), "without a session there is nothing to resume"
        assert "Max Early Data: 0" in first
        second = await openssl(
            cluster, "-tls1_3", "-sess_in", str(session), "-early_data", str(early), sent=b"Q\n"
        )
        assert "TLSv1.3" in second
        assert "Early data was accepted" not in second


async def open_tls(cluster, pki, client_files=None):
    host, port = cluster.broker.kafka.listener.split(":")
    return await asyncio.open_connection(host, int(port), ssl=pki.client_context(client_files))


async def test_tls_on_a_plain_port_is_closed_and_others_are_served(pki):
    context = pki.client_context()
    async with secured(http=True) as cluster:
        for interface in ("kafka", "http"):
            host, port = cluster.broker.listeners[interface].split(":")
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection(host, int(port), ssl=context, ssl_handshake_timeout=GIVE_UP_S)
        await check_served(cluster)
        async with httpx.AsyncClient(timeout=GIVE_UP_S) as web:
            answer = await web.get(f"http://{cluster.broker.listeners['http']}/healthz")
            assert answer.status_code == 200


async def test_a_certificate_of_another_host_is_refused_by_clients(pki, caplog):
    """It is of the same CA, so that only the name is wrong. Our client, which does not send its password, and Python's
    own."""
    caplog.set_level("INFO")
    pki.install(pki.issue(hosts=("other.example",)))
    async with encrypted(pki, grpc=True) as cluster:
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            await open_tls(cluster, pki)
        address = cluster.broker.listeners["grpc"]
        proof = {"tls": str(pki.ca_path), "username": "a", "password": "b"}
        async with AsyncAdmin(address=address, timeout=GIVE_UP_S, **proof) as admin:
            with without_retries(), pytest.raises(MillpondError, match="another host name"):
                await admin.list_topics()
        assert "authentication failed" not in caplog.messages


async def test_an_expired_client_certificate_is_refused(pki, tmp_path):
    expired = issue_certificate(pki.ca, name="alice", now=NOW - A_YEAR, lifetime=A_YEAR / 2)
    files = (tmp_path / "expired.pem", tmp_path / "expired-key.pem")
    files[0].write_bytes(expired.certificate_pem())
    files[1].write_bytes(expired.key_pem())
    async with encrypted(pki, "required") as cluster:
        for given, is_served in ((files, False), (pki.client_files("alice"), True)):
            assert await served(cluster, pki, given) is is_served


async def served(cluster, pki, client_files):
    """With TLS 1.3 a client learns of a refusal when it reads."""
    writer = None
    try:
        client = connect(cluster)
        client._reader, writer = await open_tls(cluster, pki, client_files)
        client._writer = writer
        answer = await client.send(ApiVersionsRequest(), 0)
        return answer.error_code == 0
    except TimeoutError:  # an OSError, and no refusal
        raise
    except (OSError, EOFError):
        return False
    finally:
        if writer is not None:
            await close(writer)
