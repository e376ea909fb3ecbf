"""TLS on all interfaces of a broker, with real clients."""

import asyncio
import socket
import ssl
import warnings
from dataclasses import replace

import grpc
import httpx
import pytest
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from cryptography.hazmat.primitives.serialization import Encoding
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.tls import Pki, close, old_client_context, until

from millpond.model.errors import InvalidSettings, NotOwner
from millpond.protocol import encode_request
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.records import Record
from millpond.testing import running_broker

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it loads its schemas in an old way
    from kafka import KafkaConsumer, KafkaProducer

MESSAGES = [b"one", b"two", b"x" * 700_000]


@pytest.fixture
def pki(tmp_path):
    return Pki(tmp_path)


@pytest.fixture
async def broker(pki):
    async with running_broker(kafka=True, grpc=True, http=True, **pki.settings()) as running:
        yield running


# -- Kafka clients --------------------------------------------------------------------------------------------


def with_librdkafka(address, pki, client_files=None):
    shared = {
        "bootstrap.servers": address,
        "security.protocol": "ssl",
        "ssl.ca.location": str(pki.ca_path),
        "broker.address.family": "v4",
    }
    if client_files is not None:
        shared |= {
            "ssl.certificate.location": str(client_files[0]),
            "ssl.key.location": str(client_files[1]),
        }
    producer = Producer(shared | {"message.max.bytes": 1_000_000})
    for each in MESSAGES:
        producer.produce("pond", each)
    assert producer.flush(60) == 0
    consumer = Consumer(shared | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["pond"])
    found = []
    while len(found) < len(MESSAGES):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def with_kafka_python(address, pki, client_files=None):
    shared = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_context": pki.client_context(client_files),
    }
    producer = KafkaProducer(**shared)
    for each in MESSAGES:
        producer.send("pond", each)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer("pond", **shared, auto_offset_reset="earliest", consumer_timeout_ms=60_000)
    found = [next(consumer).value for _ in MESSAGES]
    consumer.close()
    return found


async def with_aiokafka(address, pki, client_files=None):
    shared = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_context": pki.client_context(client_files),
    }
    producer = AIOKafkaProducer(**shared)
    await producer.start()
    for each in MESSAGES:
        await producer.send_and_wait("pond", each)
    await producer.stop()
    consumer = AIOKafkaConsumer("pond", **shared, auto_offset_reset="earliest")
    await consumer.start()
    found = [(await consumer.getone()).value for _ in MESSAGES]
    await consumer.stop()
    return found


@pytest.mark.parametrize("client", [with_librdkafka, with_kafka_python])
async def test_kafka_clients_produce_and_consume(broker, pki, client):
    assert await asyncio.to_thread(client, broker.listeners["kafka"], pki) == MESSAGES


async def test_aiokafka_produces_and_consumes(broker, pki):
    assert await with_aiokafka(broker.listeners["kafka"], pki) == MESSAGES


@pytest.mark.parametrize("client", [with_librdkafka, with_kafka_python])
async def test_kafka_clients_present_certificates(pki, client):
    async with running_broker(kafka=True, **pki.settings("required")) as broker:
        seen = certificates_of(broker)
        address, files = broker.listeners["kafka"], pki.client_files("alice")
        assert await asyncio.to_thread(client, address, pki, files) == MESSAGES
        alice = ssl.PEM_cert_to_DER_cert(files[0].read_text())
        assert seen
        assert set(seen) == {(True, alice)}


def certificates_of(broker):
    """What the connections of a broker know of their clients, filled as they open."""
    seen, opened = [], broker.kafka.opened

    def open_and_remember(connection):
        seen.append((connection.encrypted, connection.peer_certificate))
        return opened(connection)

    broker.kafka.opened = open_and_remember
    return seen


async def refused_by(broker, context):
    """Whether the Kafka listener refuses a client: with TLS 1.3 it learns of it when it reads."""
    host, port = broker.listeners["kafka"].split(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    except OSError:
        return True
    try:
        return not await reader.read(1)
    except OSError:
        return True
    finally:
        await close(writer)


async def test_a_client_without_certificate_is_refused_where_it_is_required(pki, tmp_path):
    (tmp_path / "other").mkdir()
    stranger = Pki(tmp_path / "other")
    async with running_broker(kafka=True, **pki.settings("required")) as broker:
        assert await refused_by(broker, pki.client_context())
        foreign = pki.client_context(pki.client_files("mallory", stranger.ca))
        assert await refused_by(broker, foreign)
        await until(lambda: broker.kafka._listener.failed == 2)


@pytest.mark.parametrize("presents", [True, False])
async def test_an_optional_certificate_may_be_left_out(pki, presents):
    async with running_broker(kafka=True, **pki.settings("optional")) as broker:
        seen = certificates_of(broker)
        host, port = broker.listeners["kafka"].split(":")
        context = pki.client_context(pki.client_files() if presents else None)
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        await until(lambda: seen)
        assert [(encrypted, certificate is not None) for encrypted, certificate in seen] == [(True, presents)]
        await close(writer)


async def test_a_plain_connection_is_not_encrypted():
    async with running_broker(kafka=True) as broker:
        seen = certificates_of(broker)
        _, writer = await asyncio.open_connection(*broker.listeners["kafka"].split(":"))
        await until(lambda: seen)
        assert seen == [(False, None)]
        await close(writer)


async def test_a_tls_client_at_a_plain_port_is_closed(pki):
    async with running_broker(kafka=True, http=True) as broker:
        assert await refused_by(broker, pki.client_context())
        async with httpx.AsyncClient(verify=pki.client_context(), timeout=60) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(f"https://{broker.listeners['http']}/healthz")
        assert broker.kafka.metrics.malformed._value.get() == 1


async def test_a_plain_kafka_client_at_a_tls_port_reaches_nothing(broker):
    def list_topics():
        with pytest.raises(KafkaException):
            Producer({"bootstrap.servers": broker.listeners["kafka"], "log_level": 0}).list_topics(timeout=1)

    await asyncio.to_thread(list_topics)
    assert broker.kafka._listener.failed > 0
    assert not broker.kafka._connections


async def test_a_large_response_reaches_a_client_that_reads_slowly(broker, pki):
    """The rest waits outside of the transport, and is counted as unread."""
    await broker.produce("pond", *(Record(value=b"x" * 500_000) for _ in range(2)))
    for _ in range(15):
        await broker.produce("pond", b"y" * 1_000_000)
    found = await asyncio.to_thread(read_large, broker.listeners["kafka"], pki)
    assert found == 17


def read_large(address, pki):
    consumer = KafkaConsumer(
        "pond",
        bootstrap_servers=address,
        security_protocol="SSL",
        ssl_context=pki.client_context(),
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        max_partition_fetch_bytes=50_000_000,
        fetch_max_bytes=50_000_000,
        receive_buffer_bytes=4096,
    )
    found = [next(consumer) for _ in range(17)]
    consumer.close()
    return len(found)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_throttled_client_is_read_again_when_its_time_is_over(pki, new_loop):
    async def scenario():
        async with running_broker(kafka=True, **pki.settings()) as broker:
            reader, writer = await asyncio.open_connection(
                *broker.listeners["kafka"].split(":"), ssl=pki.client_context(), server_hostname="localhost"
            )
            await until(lambda: broker.kafka._connections)
            [connection] = broker.kafka._connections
            requests = encode_request(ApiVersionsRequest(), 0, 1, "c").buffers * 20
            connection.mute(50)
            writer.writelines(requests)
            for _ in range(20):
                length = int.from_bytes(await reader.readexactly(4))
                assert len(await reader.readexactly(length)) == length
            assert not connection.is_muted
            await close(writer)
            await until(lambda: not broker.kafka._connections)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


async def test_handshakes_count_as_connections(pki, caplog):
    async with running_broker(kafka=True, connections_max=1, **pki.settings()) as broker:
        address = broker.listeners["kafka"].split(":")
        _, silent = await asyncio.open_connection(*address)
        await until(lambda: broker.kafka._listener.handshakes == 1)
        reader, refused = await asyncio.open_connection(*address)
        assert await reader.read() == b""
        assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [
            "Kafka connection refused; connection limit reached"
        ]
        await close(silent)
        await close(refused)


# -- HTTP -----------------------------------------------------------------------------------------------------


async def test_http_clients_use_tls(broker, pki):
    async with httpx.AsyncClient(
        verify=pki.client_context(), base_url=f"https://{broker.listeners['http']}", timeout=60
    ) as client:
        assert (await client.post("/topics/pond/produce/0", content=b"x" * 900_000)).status_code == 200
        answer = await client.get("/topics/pond/fetch/0?offset=0")
        assert answer.status_code == 200
        assert len(answer.content) >= 900_000


async def test_handshakes_count_as_http_connections(broker, monkeypatch):
    monkeypatch.setattr(broker.web, "limits", replace(broker.web.limits, connections_max=1))
    address = broker.listeners["http"].split(":")
    _, silent = await asyncio.open_connection(*address)
    await until(lambda: broker.web._listener.handshakes == 1)
    reader, refused = await asyncio.open_connection(*address)
    assert await reader.read() == b""
    assert broker.web._listener.refused == 1
    await close(silent)
    await close(refused)


async def test_a_plain_http_client_is_closed(broker):
    async with httpx.AsyncClient(timeout=60) as client:
        with pytest.raises(httpx.HTTPError):
            await client.get(f"http://{broker.listeners['http']}/healthz")
    await until(lambda: broker.web._listener.failed == 1)


async def test_an_idle_client_does_not_use_up_the_time_for_the_stop(pki, monkeypatch):
    """It does not confirm that its connection is closed, because it reads nothing."""
    aborted = []
    async with running_broker(http=True, **pki.settings()) as broker:
        monkeypatch.setattr(broker.web, "_abort_connections", lambda: aborted.append(broker))
        client = httpx.AsyncClient(verify=pki.client_context(), timeout=60)
        await client.get(f"https://{broker.listeners['http']}/healthz")
        assert len(broker.web._state.connections) == 1
    assert not aborted
    assert not broker.web._state.connections
    await client.aclose()


async def test_an_idle_kafka_client_does_not_outlive_the_broker(pki, monkeypatch):
    monkeypatch.setattr("millpond.frontends.kafka.server.TLS_CLOSE_S", 0.01)
    async with running_broker(kafka=True, **pki.settings()) as broker:
        host, port = broker.listeners["kafka"].split(":")
        idle = await asyncio.to_thread(socket.create_connection, (host, int(port)))
        encrypted = await asyncio.to_thread(pki.client_context().wrap_socket, idle, server_hostname=host)
        await until(lambda: broker.kafka._connections)
    await until(lambda: not broker.kafka._connections)
    encrypted.close()


async def test_owners_are_reached_by_the_scheme_of_clients(pki, monkeypatch):
    for mode, scheme in (("on", "https"), ("proxy", "https"), ("off", "http")):
        settings = pki.settings() | {"tls": mode}
        async with running_broker(http=True, **settings) as broker:
            monkeypatch.setattr(broker.administration, "topics", moved)
            own = "https" if mode == "on" else "http"
            async with httpx.AsyncClient(verify=pki.client_context(), timeout=60) as client:
                answer = await client.get(f"{own}://{broker.listeners['http']}/topics")
            assert answer.status_code == 307
            assert answer.headers["location"] == f"{scheme}://owner.example:8000/topics"


def moved(*_, **__):
    raise NotOwner(owner_http="owner.example:8000")


# -- gRPC -----------------------------------------------------------------------------------------------------


async def health(address, credentials):
    async with grpc.aio.secure_channel(address, credentials) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)).status


def trusting(pki, client_files=None):
    key, chain = (
        (client_files[1].read_bytes(), client_files[0].read_bytes()) if client_files else (None, None)
    )
    return grpc.ssl_channel_credentials(pki.ca_path.read_bytes(), key, chain)


async def test_grpc_clients_use_tls(broker, pki, tmp_path):
    assert await health(broker.listeners["grpc"], trusting(pki)) == health_pb2.HealthCheckResponse.SERVING
    (tmp_path / "other").mkdir()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await health(broker.listeners["grpc"], trusting(Pki(tmp_path / "other")))
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_grpc_requires_client_certificates(pki):
    async with running_broker(grpc=True, **pki.settings("required")) as broker:
        address = broker.listeners["grpc"]
        with pytest.raises(grpc.aio.AioRpcError):
            await health(address, trusting(pki))
        assert await health(address, trusting(pki, pki.client_files())) == 1


async def test_grpc_refuses_old_versions(broker):
    host, port = broker.listeners["grpc"].split(":")
    with pytest.warns(DeprecationWarning, match="TLSv1"), pytest.raises(OSError):  # noqa: PT011
        await asyncio.open_connection(host, int(port), ssl=old_client_context())


# -- a new certificate ----------------------------------------------------------------------------------------


async def shown_at(address, pki):
    context = pki.client_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    host, port = address.split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    await close(writer)
    return found


async def test_a_new_certificate_reaches_every_interface_while_connections_live(broker, pki):
    addresses = [broker.listeners[interface] for interface in ("kafka", "grpc", "http")]
    before = {await shown_at(address, pki) for address in addresses}
    assert len(before) == 1
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.listeners["kafka"],
        security_protocol="SSL",
        ssl_context=pki.client_context(),
    )
    await producer.start()
    await producer.send_and_wait("pond", b"before")
    connections = set(broker.kafka._connections)
    new = pki.install(pki.issue()).certificate.public_bytes(Encoding.DER)
    loaded = broker.interfaces.tls.current
    broker.reload_tls()
    await until(lambda: broker.interfaces.tls.current is not loaded)
    assert {await shown_at(address, pki) for address in addresses} == {new}
    await producer.send_and_wait("pond", b"after")
    assert set(broker.kafka._connections) & connections == connections
    await producer.stop()


async def test_a_bad_new_file_changes_nothing(broker, pki, caplog):
    addresses = [broker.listeners[interface] for interface in ("kafka", "grpc", "http")]
    before = {await shown_at(address, pki) for address in addresses}
    pki.install(pki.expired())
    broker.reload_tls()
    await until(lambda: any("not reloaded" in record.message for record in caplog.records))
    assert {await shown_at(address, pki) for address in addresses} == before


@pytest.mark.parametrize(
    ("missing", "name"),
    [("tls_certificate", "tls_certificate"), ("tls_key", "tls_key"), ("tls_client_ca", "tls_client_auth")],
)
async def test_a_file_that_is_not_set_is_named(pki, missing, name):
    with pytest.raises(InvalidSettings) as refused:
        async with running_broker(kafka=True, **(pki.settings("required") | {missing: ""})):
            pass
    assert refused.value.facts["name"] == name


async def test_a_broker_does_not_start_with_an_expired_certificate(pki):
    pki.install(pki.expired())
    with pytest.raises(InvalidSettings, match="expired at"):
        async with running_broker(kafka=True, **pki.settings()):
            pass


async def test_a_broker_behind_a_proxy_is_plain(pki):
    async with running_broker(http=True, **(pki.settings() | {"tls": "proxy"})) as broker:
        async with httpx.AsyncClient(timeout=60) as client:
            assert (await client.get(f"http://{broker.listeners['http']}/healthz")).status_code == 200
        assert broker.interfaces.tls is None
        broker.reload_tls()
