"""No secret is shown: one secured broker is used through every interface with right and wrong proofs, and everything
that it and the command line print is searched for each of them."""

import asyncio
import contextlib
import hashlib
import json
import logging
import subprocess
import sys
from base64 import b64encode
from urllib.parse import quote

import grpc
import httpx
import pytest
from click.testing import CliRunner
from tests.tls import Pki
from tests.unit.cli.conftest import environment
from tests.unit.frontends.kafka.secured import SETTINGS, Cluster, authenticate, shake
from tests.unit.frontends.kafka.wire import Client
from tests.unit.frontends.rpc.wire import Wire
from tests.unit.security.issuer import AUDIENCE, ISSUER, jwks, token
from tests.unit.security.proofs import Clock, ScramClient

from millpond.cli.main import cli
from millpond.client import AsyncAdmin
from millpond.model.errors import MillpondError
from millpond.observability.logs import JsonFormatter, TextFormatter
from millpond.protocol.messages.scram import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from millpond.security import gate, view
from millpond.security.tls import ServerTls
from millpond.security.tls_files import InvalidCertificate
from millpond.stubs import admin_pb2
from millpond.testing import running_broker

RIGHT, WRONG = "r1ght-pa55word", "wr0ng-pa55word"
ADMIN = "adm1n-pa55word"
AS_NAME = "typed-1nto-the-wrong-field"
NEW, SALTED = "n3w-pa55word", "s4lted-pa55word"
CATALOG = "c4talog-pa55word"
COOKIE = "s3ssion-of-a-browser"
SESSION = "millpond-session"
"""The name of the cookie without TLS."""
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
PATIENCE_S = 120


class Secrets:
    """Every secret, in each form in which it could be printed."""

    def __init__(self):
        self._forms = {}

    def add(self, name, *texts):
        for text in texts:
            data = text if isinstance(text, bytes) else text.encode()
            forms = {data.hex(), data.hex().upper(), b64encode(data).decode().rstrip("="), repr(data)[2:-1]}
            if isinstance(text, str):
                forms |= {text, quote(text, safe=""), json.dumps(text)[1:-1]}
            self._forms.setdefault(name, set()).update(each for each in forms if len(each) >= 8)

    def shown_in(self, text):
        """The names of the secrets that a text contains."""
        return sorted(name for name, forms in self._forms.items() if any(each in text for each in forms))


class Printed:
    """What was printed, with its source."""

    def __init__(self):
        self.texts = {}

    def add(self, source, text):
        self.texts.setdefault(source, []).append(text)

    def exposures(self, secrets):
        return [
            (source, name, text[:300])
            for source, texts in self.texts.items()
            for text in texts
            for name in secrets.shown_in(text)
        ]


class EveryRecord(logging.Handler):
    """Both formats, and the fields that neither prints."""

    def __init__(self, printed):
        super().__init__(logging.DEBUG)
        self._printed = printed

    def filter(self, record):
        """Without those of the test's own client."""
        return not record.name.startswith(("httpx", "httpcore"))

    def emit(self, record):
        self._printed.add("log as text", TextFormatter().format(record))
        self._printed.add("log as JSON", JsonFormatter().format(record))
        self._printed.add("log record", str(vars(record)))


@contextlib.contextmanager
def all_logs(printed):
    handler, root = EveryRecord(printed), logging.getLogger()
    levels = {each: each.level for each in (root, logging.getLogger("millpond"))}
    root.addHandler(handler)
    for each in levels:
        each.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.removeHandler(handler)
        for each, level in levels.items():
            each.setLevel(level)


def test_the_search_finds_every_form():
    secrets = Secrets()
    secrets.add("password", 'a "secret"/+é')
    secrets.add("key", bytes(range(200, 232)))
    for text in (
        'x a "secret"/+é',
        "a%20%22secret%22%2F%2B%C3%A9",
        json.dumps({"password": 'a "secret"/+é'}),
        b64encode('a "secret"/+é'.encode()).decode(),
    ):
        assert secrets.shown_in(text) == ["password"], text
    assert secrets.shown_in(str({"salted": bytes(range(200, 232))})) == ["key"]
    assert secrets.shown_in(bytes(range(200, 232)).hex()) == ["key"]
    assert secrets.shown_in("nothing") == []


async def test_no_secret_is_shown_anywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(gate, "FAILURE_DELAY_S", 0)
    monkeypatch.setattr(view, "CATCH_UP_S", 0)
    secrets, printed = Secrets(), Printed()
    secrets.add("right password", RIGHT, f"alice:{RIGHT}")
    secrets.add("wrong password", WRONG, f"alice:{WRONG}")
    secrets.add("password of the administrator", ADMIN, f"admin:{ADMIN}")
    secrets.add("password in the field of the name", AS_NAME)
    secrets.add("new password", NEW)
    secrets.add("password of the catalog", CATALOG)
    secrets.add("session of a browser", COOKIE)
    with all_logs(printed):
        await use_everything(tmp_path, secrets, printed)
    check_that_everything_was_used(printed)
    assert printed.exposures(secrets) == []


def check_that_everything_was_used(printed):
    logged = "\n".join(printed.texts["log as text"])
    for event in (
        *("client authenticated", "authentication failed", "password set", "token refused"),
        *("access denied", "certificate not reloaded"),
    ):
        assert event in logged, event
    for source in ("command", "process", "response over HTTP", "response over gRPC", "response over Kafka"):
        assert printed.texts[source], source


async def use_everything(tmp_path, secrets, printed):
    jwks_file = tmp_path / "jwks.json"
    jwks_file.write_bytes(jwks())
    settings = {
        "sasl_mechanisms": (*MECHANISMS, "OAUTHBEARER"),
        "oauth_issuer": ISSUER,
        "oauth_audience": AUDIENCE,
        "oauth_jwks": str(jwks_file),
        "password_iterations": 4096,
    }
    async with running_broker(
        kafka=True, grpc=True, http=True, clock=Clock(), **SETTINGS, **settings
    ) as broker:
        cluster = Cluster(broker)
        await cluster.user("alice", RIGHT)
        await cluster.user("admin", ADMIN)
        secrets.add("secret of the cluster", broker.security.secret)
        jwts = [token("RS256"), token("RS256", name="rsa-of-mallory"), token("RS256", exp=1)]
        secrets.add("JWT", *jwts, *(each.rpartition(".")[2] for each in jwts))
        await over_http(broker, jwts, secrets, printed)
        await over_grpc(broker, jwts, secrets, printed)
        await over_kafka(broker, jwts, secrets, printed)
        await on_the_command_line(broker, tmp_path, printed)
    key_files(tmp_path, secrets, printed)
    catalog_url(tmp_path, printed)


def basic(user, password):
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


async def over_http(broker, jwts, secrets, printed):
    admin = {"authorization": basic("admin", ADMIN)}
    base = f"http://{broker.listeners['http']}"
    async with httpx.AsyncClient(base_url=base, timeout=PATIENCE_S) as client:

        async def call(method, path, headers, **options):
            answer = await client.request(method, path, headers=headers, **options)
            printed.add("response over HTTP", f"{answer.status_code} {answer.headers} {answer.text}")
            return answer

        made = (await client.post("/security/tokens", json={"principal": "User:ci"}, headers=admin)).json()[
            "token"
        ]  # a new token is shown once, here
        wrong_token = made[:-6] + "aaaaaa"
        secrets.add("token", made, made.rpartition("_")[2])
        secrets.add("wrong token", wrong_token)
        proofs = [
            basic("alice", RIGHT),
            basic("alice", WRONG),
            basic(AS_NAME, WRONG),
            f"Basic {RIGHT}",
            f"Bearer {made}",
            f"Bearer {wrong_token}",
            *(f"Bearer {each}" for each in jwts),
            f"Digest {WRONG}",
        ]
        for proof in proofs:
            for path in ("/topics", "/security/users", "/absent"):
                await call("GET", path, {"authorization": proof})
        await with_a_session(client, call, secrets, printed)
        for body in (
            {"password": NEW},
            {"password": [NEW]},
            {"password": NEW, "other": 1},
            {"password": NEW + "\0"},
            {"password": NEW * 100},
            NEW,
        ):
            await call("PUT", "/security/users/bob", admin, json=body)
            await call("PUT", "/security/users/bob", {"authorization": basic("alice", RIGHT)}, json=body)
        await call("PUT", "/security/users/bob", admin, content=f'{{"password": "{NEW}'.encode())
        await call("DELETE", f"/security/tokens/{quote(wrong_token)}", admin)
        for path in ("/metrics", "/openapi.json", "/security/users", "/security/tokens", "/cluster", "/"):
            assert (await call("GET", path, admin)).status_code == 200


async def with_a_session(client, call, secrets, printed):
    """The session is shown once, in the cookie; and the token of its forms to those who have the cookie."""
    for body in ({"username": "alice", "password": WRONG}, {"username": AS_NAME, "password": WRONG}):
        assert (await call("POST", "/session", {}, json=body)).status_code == 401
    opened = await client.post("/session", json={"username": "alice", "password": RIGHT})
    session, form_token = opened.cookies[SESSION], opened.json()["csrf_token"]
    client.cookies.clear()
    damaged = session[:-6] + "aaaaaa"
    secrets.add("session", session)
    secrets.add("token of forms", form_token)
    secrets.add("damaged session", damaged)
    shown = f"{opened.headers} {opened.text}"
    assert (shown.count(session), shown.count(form_token)) == (1, 1)
    printed.add("response over HTTP", shown.replace(session, "").replace(form_token, ""))
    for value, status in ((session, 200), (damaged, 401), (COOKIE, 401)):
        cookie = {"cookie": f"{SESSION}={value}"}
        assert (await call("GET", "/topics", cookie)).status_code == status
        assert (await call("GET", "/security/users", cookie)).status_code >= 400
    own = {"cookie": f"{SESSION}={session}"}
    by_script = {**own, "x-millpond-request": "1"}
    await call("PUT", "/security/users/bob", by_script, json={"password": NEW})
    for given, status in ((form_token[:-6] + "aaaaaa", 403), (form_token, 303)):
        answer = await call("POST", "/session/logout", own, data={"csrf_token": given})
        assert answer.status_code == status
    assert (await call("GET", "/topics", own)).status_code == 401


async def over_grpc(broker, jwts, secrets, printed):
    async with grpc.aio.insecure_channel(broker.listeners["grpc"]) as channel:
        wire = Wire(channel)

        async def call(name, request, proof):
            try:
                answer = await wire(name, request, metadata=[("authorization", proof)])
                printed.add("response over gRPC", str(answer))
                return answer
            except grpc.aio.AioRpcError as error:
                trailing = error.trailing_metadata()
                printed.add("response over gRPC", f"{error.code()} {error.details()} {trailing}")

        wrong = basic("alice", WRONG)
        for proof in (basic("alice", RIGHT), wrong, basic(AS_NAME, WRONG), *(f"Bearer {j}" for j in jwts)):
            await call("Admin.ListTopics", admin_pb2.ListTopicsRequest(), proof)
            await call("Admin.ListUsers", admin_pb2.ListUsersRequest(), proof)
        for password in (NEW, NEW + "\0", NEW * 100):
            for proof in (basic("admin", ADMIN), basic("alice", RIGHT)):
                await call("Admin.PutUser", admin_pb2.PutUserRequest(name="carol", password=password), proof)
    address = broker.listeners["grpc"]
    for password in (RIGHT, WRONG):
        async with AsyncAdmin(address=address, username="alice", password=password) as admin:
            printed.add("client", f"{admin!r} {vars(admin)!r}")
            try:
                await admin.list_users()
            except MillpondError as error:
                printed.add("client", f"{error!r} {error} {error.facts}")


async def over_kafka(broker, jwts, secrets, printed):
    async def step(client, data):
        answer = await authenticate(client, data)
        printed.add("response over Kafka", str(answer))
        return answer

    for mechanism in MECHANISMS:
        for user, password in (("alice", RIGHT), ("alice", WRONG), (AS_NAME, WRONG)):
            async with Client(broker.kafka.listener) as client:
                await shake(client, mechanism)
                if mechanism == "PLAIN":
                    await step(client, f"\0{user}\0{password}".encode())
                    continue
                scram = ScramClient(user, password, mechanism)
                first = await step(client, scram.first())
                await step(client, scram.final(bytes(first.auth_bytes)))
                secrets.add("salted password", scram.salted)
    for each in jwts:
        async with Client(broker.kafka.listener) as client:
            await shake(client, "OAUTHBEARER")
            await step(client, f"n,,\x01auth=Bearer {each}\x01\x01".encode())
    async with Client(broker.kafka.listener) as client:
        await shake(client, "PLAIN")
        await step(client, f"\0admin\0{ADMIN}".encode())
        salted = hashlib.pbkdf2_hmac("sha256", SALTED.encode(), bytes(16), 4096)
        secrets.add("salted password that a client stores", salted)
        for name, iterations in (("dave", 4096), ("dave", 1), ("", 4096)):
            stored = ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=iterations, salt=bytes(16), salted_password=salted
            )
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[stored])
            printed.add("response over Kafka", str(await client.send(request, 0)))


async def on_the_command_line(broker, folder, printed):
    def file(name, text):
        path = folder / name
        path.write_text(text + "\n")
        path.chmod(0o600)
        return str(path)

    right, wrong = file("right", RIGHT), file("wrong", WRONG)
    admin = {"MILLPOND_USERNAME": "admin", "MILLPOND_PASSWORD_FILE": file("admin", ADMIN)}
    new = file("new", NEW)
    config = str(folder / "config")

    def run(*arguments, env):
        variables = {"MILLPOND_ADDRESS": broker.listeners["grpc"], "XDG_CONFIG_HOME": config, **env}
        done = CliRunner().invoke(cli, arguments, env=variables, prog_name="millpond")
        printed.add("command", f"{arguments} {done.output} {done.stderr} {done.exception!r}")
        return done.exit_code

    stored = ("context", "set", "alice", "--username", "alice", "--password-file", right)
    assert await asyncio.to_thread(run, *stored, env={}) == 0
    for env, codes in (
        ({"MILLPOND_USERNAME": "alice", "MILLPOND_PASSWORD_FILE": right}, [0, 1, 0]),
        ({"MILLPOND_USERNAME": "alice", "MILLPOND_PASSWORD_FILE": wrong}, [1, 1, 0]),
        ({"MILLPOND_USERNAME": "alice", "MILLPOND_PASSWORD": WRONG}, [1, 1, 0]),
        ({"MILLPOND_TOKEN_FILE": wrong}, [1, 1, 0]),
        ({"MILLPOND_TOKEN": WRONG}, [1, 1, 0]),
    ):
        commands = (("topic", "list"), ("user", "list", "--json"), ("context", "show", "alice", "--json"))
        assert [await asyncio.to_thread(run, *command, env=env) for command in commands] == codes, env
    assert await asyncio.to_thread(run, "user", "set", "eve", "--new-password-file", new, env=admin) == 0
    assert await asyncio.to_thread(run, "user", "list", env=admin) == 0
    assert await asyncio.to_thread(run, "token", "list", "--json", env=admin) == 0


def key_files(folder, secrets, printed):
    """A key where a certificate is expected, a key of another certificate, and both when files are reloaded."""
    pki = Pki(folder)
    key = pki.key.read_bytes()
    secrets.add("private key", *key.decode().splitlines()[1:-1])
    tls = ServerTls(pki.files())
    certificate = pki.certificate.read_bytes()
    for name, content in (("certificate", key), ("key", certificate), ("key", pki.issue().key_pem())):
        path = getattr(pki, name)
        before = path.read_bytes()
        path.write_bytes(content)
        assert not tls.reload()
        with pytest.raises(InvalidCertificate) as refused:
            ServerTls(pki.files())
        printed.add("error", repr(refused.value))
        path.write_bytes(before)
    printed.add("error", repr(tls) + repr(pki.files()))


def catalog_url(folder, printed):
    """The password of a PostgreSQL that cannot be reached, in a URL and in libpq's own form."""
    for catalog in (
        f"postgresql://millpond:{CATALOG}@127.0.0.1:1/millpond",
        f"postgresql://127.0.0.1:1/millpond?password={CATALOG}",
    ):
        chosen, variables = ["--data-dir", str(folder / "data")], {"MILLPOND_CATALOG": catalog}
        for command, code in ((["settings"], 0), (["settings", "--json"], 0), (["doctor", "--json"], 1)):
            done = CliRunner().invoke(cli, [*command, *chosen], prog_name="millpond", env=variables)
            printed.add("command", f"{command} {done.output} {done.stderr} {done.exception!r}")
            assert done.exit_code == code, done.output
        refused = CliRunner().invoke(cli, ["settings", "--set", f"catalog={catalog}"], prog_name="millpond")
        assert (refused.exit_code, "set MILLPOND_CATALOG" in refused.output) == (2, True)
        printed.add("command", refused.output)
    command = [sys.executable, "-m", "millpond", "serve", *chosen, "--log-format", "json"]
    command += ["--kafka=", "--grpc=", "--http=", "--log-level", "DEBUG"]
    done = subprocess.run(
        command,
        capture_output=True,
        timeout=PATIENCE_S,
        env={**environment(), **variables},
        check=False,
        text=True,
    )
    assert done.returncode != 0
    printed.add("process", done.stdout + done.stderr)
