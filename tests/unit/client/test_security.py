"""Clients connect with TLS, send their credentials with every call, and nowhere else; no text shows a secret."""

import asyncio
import base64
import contextlib
import http.server
import threading
import traceback
from datetime import timedelta

import pytest
from tests.certificates import Authority
from tests.gateway import Gateway

from millpond import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncPayloads,
    AsyncProducer,
    AsyncPublisher,
    AsyncSubscriber,
    Consumer,
    Outcome,
    Payloads,
    Producer,
    Publisher,
    Subscriber,
    Tls,
)
from millpond.client import transfer
from millpond.client.security import Security, SecurityArguments, load_security
from millpond.errors import (
    AuthenticationFailed,
    InvalidArgument,
    NotAuthenticated,
    Unavailable,
    Unreachable,
)
from millpond.stubs import payloads_pb2
from millpond.testing import running_broker

SECRET = "s3cret-w0rd"
WAIT_SECONDS_MAX = 60
BASIC = "Basic " + base64.b64encode(f"alice:{SECRET}".encode()).decode()
BEARER = f"Bearer {SECRET}"
CLIENTS = [
    lambda **named: AsyncProducer("t", **named),
    lambda **named: AsyncConsumer("t", **named),
    lambda **named: AsyncAdmin(**named),
    lambda **named: AsyncPayloads(**named),
    lambda **named: AsyncSubscriber("t", "s", **named),
    lambda **named: AsyncPublisher(**named),
    lambda **named: Producer("t", **named),
    lambda **named: Consumer("t", **named),
    lambda **named: Admin(**named),
    lambda **named: Payloads(**named),
    lambda **named: Subscriber("t", "s", **named),
    lambda **named: Publisher(**named),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@contextlib.asynccontextmanager
async def gateway_with(files=None, **settings):
    """A broker whose clients see the gateway's address only."""
    gateway = Gateway()
    await gateway.start(files)
    try:
        async with running_broker(grpc=True, grpc_advertise=gateway.address, **settings) as broker:
            gateway.forward_to(broker.bound["grpc"])
            yield gateway, broker
    finally:
        await gateway.stop()


async def until(is_true):
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not is_true():
            await asyncio.sleep(0.01)


# -- credentials go with every call ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("credentials", "expected"),
    [
        ({"username": "alice", "password": SECRET}, BASIC),
        ({"token": SECRET}, BEARER),
        ({"token": lambda: SECRET}, BEARER),
        ({}, None),
    ],
    ids=["password", "token", "function", "none"],
)
async def test_every_call_and_stream_carries_the_credentials_over_tls(authority, credentials, expected):
    async with gateway_with(authority.server()) as (gateway, broker):
        await broker.log.create_topic("films", 1, {"payload": "reference"})
        named = {"address": gateway.address, "tls": authority.ca, **credentials}
        async with AsyncPublisher("films", **named) as publisher:
            await publisher.send(b"body")
        async with AsyncAdmin(**named) as admin:
            await admin.create_subscription("films", "s", {"mode": "shared"})
        async with AsyncSubscriber("films", "s", **named) as subscriber:
            delivery = await anext(subscriber)
            assert await delivery.data() == b"body"
            async with subscriber.transaction() as transaction:
                transaction.ack(delivery)
        async with AsyncConsumer("films", group="g", **named) as consumer:
            assert len((await consumer.poll()).messages) == 1
    names = {name for name, _ in gateway.calls}
    assert names >= {"ProduceStream", "Subscribe", "Upload", "Download", "Poll", "DescribeTopic", "Commit"}
    assert gateway.authorizations() == {expected}


async def test_clients_without_an_event_loop_send_credentials_too(authority):
    async with gateway_with(authority.server()) as (gateway, _):
        named = {"address": gateway.address, "tls": str(authority.ca), "token": SECRET}
        await asyncio.to_thread(_use_sync_clients, named)
    assert gateway.authorizations() == {BEARER}
    assert {name for name, _ in gateway.calls} >= {
        "ProduceStream",
        "Subscribe",
        "Poll",
        "UploadPlace",
        "ListTopics",
    }


def _use_sync_clients(named):
    with Admin(**named) as admin:
        admin.create_topic("t", configs={"payload": "reference"})
        admin.list_topics()
    with Payloads("t", **named) as payloads:
        reference = payloads.upload(b"body")
        assert payloads.download(reference) == b"body"
    with Publisher("t", inline_bytes_max=10, **named) as publisher:
        publisher.send(b"two")
    with Producer("t", **named) as producer:
        producer.send(b"one")
    with Consumer("t", **named) as consumer:
        assert len(consumer.poll(wait=WAIT_SECONDS_MAX).messages) == 2
    with Subscriber("t", "s", create={"mode": "shared"}, **named) as subscriber:
        next(subscriber).ack()


async def test_a_signed_url_receives_no_credentials(tmp_path):
    """The store's server is not a broker: it must not see what proves who the client is."""
    received = []

    class Store(http.server.BaseHTTPRequestHandler):
        def do_PUT(self):
            received.append(dict(self.headers))
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        gateway = PlaceGateway(f"http://127.0.0.1:{store.server_address[1]}/x?signature=y")
        await gateway.start()
        async with AsyncPayloads("t", address=gateway.address, token=SECRET) as payloads:
            await payloads.upload(b"body")
        await gateway.stop()
        store.shutdown()
    assert gateway.authorizations("UploadPlace") == {BEARER}
    assert len(received) == 1
    assert "authorization" not in {name.lower() for name in received[0]}
    assert SECRET not in str(received)


class PlaceGateway(Gateway):
    """Sends every body to one URL."""

    def __init__(self, url):
        super().__init__()
        self._url = url

    async def _serve(self, method, requests, context):
        self.calls.append(
            (method.rpartition("/")[2], dict(context.invocation_metadata()).get("authorization"))
        )
        async for _ in requests:
            pass
        yield payloads_pb2.PayloadPlace(url=self._url).SerializeToString()


async def test_a_redirect_without_tls_takes_no_credentials_to_another_machine():
    """A broker may name an owner anywhere; without TLS the client does not follow it with its credentials."""
    gateway = Gateway()
    await gateway.start()
    async with AsyncAdmin(address=gateway.address, token=SECRET) as admin:
        with pytest.raises(
            InvalidArgument, match=r"Credentials are not sent to elsewhere\.example:1 without TLS"
        ):
            admin._connections.channel("elsewhere.example:1")
    await gateway.stop()


# -- rotation ----------------------------------------------------------------------------------------------------------


async def test_the_function_is_asked_before_each_call():
    tokens = iter(["one", "two"])
    async with (
        gateway_with() as (gateway, _),
        AsyncAdmin(address=gateway.address, token=lambda: next(tokens)) as admin,
    ):
        await admin.list_topics()
        await admin.list_topics()
    assert [authorization for _, authorization in gateway.calls] == ["Bearer one", "Bearer two"]


async def test_a_function_that_fails_once_is_asked_again():
    answers = iter([OSError(SECRET), None, "fine"])

    def token():
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    async with gateway_with() as (gateway, _), AsyncAdmin(address=gateway.address, token=token) as admin:
        with pytest.raises(
            InvalidArgument, match="token=\\(hidden\\): expected a function that returns text"
        ):
            await admin.list_topics()
        await admin.list_topics()
    assert gateway.authorizations() == {"Bearer fine"}


async def test_a_producer_and_a_subscriber_go_on_with_a_new_token_when_the_old_one_has_expired():
    current = ["old"]
    async with gateway_with() as (gateway, broker):
        await broker.log.create_topic("t", 1, {})
        await broker.queues.create("t", "s", {"mode": "shared"})
        gateway.accepted = {"Bearer old", "Bearer new"}
        named = {"address": gateway.address, "token": lambda: current[0]}
        async with AsyncProducer("t", **named) as producer, AsyncSubscriber("t", "s", **named) as subscriber:
            await producer.send(b"one")
            first = await anext(subscriber)
            assert (first.value, await first.ack()) == (b"one", Outcome.OK)
            current[0], gateway.accepted = "new", {"Bearer new"}
            gateway.expire()
            await producer.send(b"two")
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                assert (await anext(subscriber)).value == b"two"
    assert ("ProduceStream", "Bearer new") in gateway.calls
    assert ("Subscribe", "Bearer new") in gateway.calls


# -- refusals ----------------------------------------------------------------------------------------------------------


LONG_S = 2.0 * WAIT_SECONDS_MAX
"""A call that retries until this timeout does not end in time."""


@pytest.mark.parametrize("with_details", [True, False])
async def test_refused_credentials_fail_calls_at_once(with_details):
    async with gateway_with() as (gateway, broker):
        await broker.log.create_topic("t", 1, {})
        gateway.accepted, gateway.with_details = {"Bearer other"}, with_details
        named = {"address": gateway.address, "timeout": LONG_S, "token": SECRET}
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            async with AsyncAdmin(**named) as admin:
                with pytest.raises(AuthenticationFailed):
                    await admin.list_topics()
                with pytest.raises(AuthenticationFailed):
                    await admin.delete_topic("t")
            async with AsyncProducer("t", **named) as producer:
                with pytest.raises(AuthenticationFailed):
                    await producer.send(b"x")
            async with AsyncConsumer("t", **named) as consumer:
                with pytest.raises(AuthenticationFailed):
                    await consumer.poll()
            async with AsyncSubscriber("t", "s", **named) as subscriber:
                with pytest.raises(AuthenticationFailed):
                    await anext(subscriber)
            async with AsyncPayloads("t", **named) as payloads:
                with pytest.raises(AuthenticationFailed):
                    await payloads.upload(b"x")
        assert len(gateway.calls) == 6, "none was repeated"


async def test_a_producer_whose_token_was_revoked_fails_at_once():
    """Its streams were open, and the broker accepts no new ones."""
    async with gateway_with() as (gateway, _):
        gateway.accepted = {BEARER}
        async with AsyncProducer("t", address=gateway.address, timeout=LONG_S, token=SECRET) as producer:
            await producer.send(b"one")
            gateway.accepted = set()
            gateway.expire()
            await until(lambda: not producer.in_topic("t")._sender._links)
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                with pytest.raises(AuthenticationFailed):
                    await producer.send(b"two")
            gateway.accepted = {BEARER}
            assert (await producer.send(b"three")).number == 2, "the producer is not broken"


async def test_a_client_without_credentials_learns_that_they_are_needed():
    async with gateway_with() as (gateway, _), AsyncAdmin(address=gateway.address, timeout=LONG_S) as admin:
        gateway.accepted = {BEARER}
        with pytest.raises(NotAuthenticated):
            await admin.list_topics()


# -- TLS ---------------------------------------------------------------------------------------------------------------


async def listed(files, client_ca=None, **named):
    """What a call over TLS raises: a gateway without a broker refuses every call that arrives."""
    gateway = Gateway()
    await gateway.start(files, client_ca)
    try:
        async with AsyncAdmin(address=gateway.address, timeout=2.0, **named) as admin:
            with pytest.raises((Unavailable, AuthenticationFailed)) as caught:
                await admin.list_topics()
    finally:
        await gateway.stop()
    return gateway, caught.value


async def test_the_brokers_certificate_is_checked(authority, tmp_path):
    other = Authority(tmp_path / "other", "Another CA")
    _, error = await listed(authority.server(), tls=authority.ca)
    assert isinstance(error, AuthenticationFailed), "it arrived"
    _, error = await listed(authority.server(), tls=other.ca)
    assert isinstance(error, Unreachable)
    assert "not signed by an authority that this client trusts" in str(error)
    _, error = await listed(authority.server(file="old", expires_in=timedelta(days=-1)), tls=authority.ca)
    assert "its certificate has expired" in str(error)


async def test_the_name_in_the_brokers_certificate_is_checked(authority):
    files = authority.server("elsewhere.example", file="elsewhere")
    _, error = await listed(files, tls=authority.ca)
    assert "its certificate is for another host name" in str(error)
    _, error = await listed(files, tls=Tls(ca=authority.ca, server_name="elsewhere.example"))
    assert isinstance(error, AuthenticationFailed), "it arrived"


async def test_tls_where_there_is_none_and_none_where_there_is(authority):
    _, error = await listed(None, tls=authority.ca)
    assert "failed: it does not use TLS" in str(error)
    _, error = await listed(authority.server())
    assert "does it need TLS" in str(error)


async def test_a_certificate_of_the_client_proves_who_it_is(authority):
    alice = authority.client("alice")
    tls = Tls(ca=authority.ca, certificate=alice.certificate, key=alice.key)
    gateway, error = await listed(authority.server(), authority.ca, tls=tls)
    assert isinstance(error, AuthenticationFailed), "it arrived"
    assert gateway.common_names == {b"alice"}
    gateway, error = await listed(authority.server(), authority.ca, tls=authority.ca)
    assert isinstance(error, Unreachable)
    assert gateway.calls == []


# -- wrong arguments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", CLIENTS)
def test_credentials_need_tls_unless_the_broker_is_on_this_machine(make):
    for address in (
        "broker.example:9999",
        "192.0.2.1:9999",
        "127.example.com:1",
        "127.0.0.1:1,broker.example:9999",
    ):
        for credentials in ({"token": SECRET}, {"username": "alice", "password": SECRET}):
            with pytest.raises(InvalidArgument, match=r"without TLS.*Turn TLS on: set tls") as refused:
                make(address=address, **credentials)
            assert SECRET not in str(refused.value)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1"])
async def test_credentials_go_to_this_machine_without_tls(address):
    AsyncAdmin(address=address, token=SECRET)


async def test_no_repr_and_no_error_shows_a_secret(authority):
    for credentials in ({"token": SECRET}, {"username": "alice", "password": SECRET}):
        named = {"address": "127.0.0.1:1", "timeout": 0.2, "tls": authority.ca, **credentials}
        async with AsyncAdmin(**named) as admin:
            shown = [repr(admin), repr(admin._connections), repr(admin._connections._security)]
            shown += [
                repr(SecurityArguments(**credentials)),
                repr(load_security(SecurityArguments(tls=False))),
            ]
            with pytest.raises(Unavailable) as caught:
                await admin.list_topics()
            shown += traceback.format_exception(caught.value)
        assert SECRET not in "".join(shown)


@pytest.mark.parametrize(
    "credentials",
    [
        {"password": SECRET},
        {"username": "alice", "password": SECRET, "token": SECRET},
        {"username": "alice", "token": SECRET},
        {"password": SECRET, "token": SECRET},
        {"token": f"{SECRET} and more"},
        {"token": f"{SECRET}\n"},
        {"token": f"{SECRET}ä"},
        {"username": "alice", "password": f"{SECRET}\ud800"},
    ],
)
def test_what_is_refused_is_not_shown(credentials):
    with pytest.raises(InvalidArgument) as refused:
        AsyncAdmin(**credentials)
    assert SECRET not in "".join(traceback.format_exception(refused.value))


def test_files_that_are_no_certificates_are_named(authority, tmp_path):
    alice, bob = authority.client("alice"), authority.client("bob")
    empty = tmp_path / "empty"
    empty.touch()
    for tls, named in (
        (tmp_path / "missing", "tls='.*missing': expected a file that can be read"),
        (empty, "tls='.*empty': expected a file with certificates"),
        (alice.key, "tls='.*alice.key': expected a file with certificates"),
        (Tls(authority.ca, alice.certificate, bob.key), "certificate='.*alice.pem': expected a certificate"),
        (Tls(authority.ca, alice.certificate, tmp_path / "no.key"), "key='.*no.key': expected a file"),
    ):
        with pytest.raises(InvalidArgument, match=named):
            AsyncAdmin(tls=tls)


def test_a_certificate_and_its_key_belong_together():
    with pytest.raises(InvalidArgument, match="certificate='a': expected the file of its key"):
        Tls(certificate="a")
    with pytest.raises(InvalidArgument, match="key='a': expected the file of its certificate"):
        Tls(key="a")
    for wrong in ({"ca": 1}, {"certificate": b"a"}, {"key": True}, {"server_name": 1}):
        with pytest.raises(TypeError, match=next(iter(wrong))):
            Tls(**wrong)


async def test_the_authorities_of_this_machine_are_trusted_by_default(authority, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    _, error = await listed(authority.server(), tls=True)
    assert isinstance(error, AuthenticationFailed), "it arrived"


def test_a_transfer_has_no_way_to_credentials():
    assert not any(isinstance(each, Security | SecurityArguments) for each in vars(transfer).values())
