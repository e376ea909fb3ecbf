"""Authentication over the Kafka protocol: what a connection may send when, and when it is closed."""

import asyncio
import logging
import struct
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest
from tests.unit.frontends.kafka.secured import (
    ADMIN,
    PASSWORD,
    SETTINGS,
    Cluster,
    authenticate,
    log_in,
    shake,
)
from tests.unit.frontends.kafka.wire import Client
from tests.unit.security.proofs import ScramClient

from millpond.catalog import security
from millpond.frontends.kafka import rights as r
from millpond.frontends.kafka.authentication import FAILED
from millpond.frontends.kafka.limits import KafkaLimits
from millpond.observability.line_limit import LineLimit
from millpond.protocol import ErrorCode
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millpond.security.scram import SCRAM_SHA_256, SCRAM_SHA_512
from millpond.settings import Settings
from millpond.testing import SimulatedClock, running_broker

METADATA = MetadataRequest(topics=[])
MECHANISMS = [SCRAM_SHA_512, SCRAM_SHA_256, "PLAIN"]
HOUR_MS = 3_600_000
GIVE_UP_S = 30


@pytest.fixture
async def stack():
    async with AsyncExitStack() as closing:
        yield closing


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def secured(stack, clock):
    async def start(**settings):
        given = {**SETTINGS, "kafka": True, "clock": clock, **settings}
        cluster = Cluster(await stack.enter_async_context(running_broker(**given)))
        await cluster.user()
        return cluster

    return start


@pytest.fixture
async def cluster(secured):
    return await secured()


@pytest.fixture
async def client(cluster, stack):
    """Connected, and not authenticated."""
    return await stack.enter_async_context(Client(cluster.broker.kafka.listener))


async def is_closed(client):
    try:
        return await client._reader.read() == b""
    except ConnectionError:
        return True


async def serves(client):
    return (await client.send(METADATA, 9)).cluster_id is not None


async def send_and_expect_close(client, request, version):
    with pytest.raises((EOFError, ConnectionError)):
        await client.send(request, version)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_the_right_password_opens_the_connection(client, mechanism, version):
    response = await log_in(client, mechanism=mechanism, version=version)
    assert (response.error_code, response.session_lifetime_ms) == (0, 0)
    assert await serves(client)


@pytest.mark.parametrize("user", ["alice", "nobody-by-that-name"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_all_failures_look_the_same_and_close_the_connection(client, mechanism, user):
    response = await log_in(client, user, "wrong", mechanism)
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED)
    assert await is_closed(client)


async def test_a_failure_is_reported_after_a_delay(client, cluster, monkeypatch):
    delays = []

    async def sleep(seconds):
        delays.append(seconds)

    handler = "millpond.frontends.kafka.handlers.sasl_authenticate.asyncio"
    monkeypatch.setattr(handler, SimpleNamespace(sleep=sleep))  # other tasks sleep as ever
    await log_in(client, password="wrong")
    [delay] = delays
    assert delay == cluster.broker.kafka.services.limits.failed_login_delay_ms / 1000 == 0.1


async def test_before_the_login_only_three_apis_are_read(client):
    versions = await client.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert {17, 36} <= {each.api_key for each in versions.api_keys}
    await send_and_expect_close(client, METADATA, 9)


async def test_an_unknown_api_before_the_login_closes_without_decoding(client, cluster):
    await client.send_bytes(struct.pack(">hhih", 9999, 0, 1, -1))
    assert await is_closed(client)


async def test_other_requests_during_the_exchange_close_the_connection(client, caplog):
    """As a failed login: aiokafka takes the refusal of its OAUTHBEARER token for a success, and sends them."""
    caplog.set_level(logging.INFO, logger="millpond.security.audit")
    await shake(client)
    await send_and_expect_close(client, METADATA, 9)
    assert [each.message for each in caplog.records] == ["authentication failed"]


async def test_an_unknown_mechanism_gets_the_list_and_a_close(client):
    response = await shake(client, "GSSAPI")
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert await is_closed(client)


async def test_handshake_v0_is_refused(client):
    response = await shake(client, version=0)
    assert (response.error_code, response.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, MECHANISMS)
    assert await is_closed(client)


async def test_only_the_enabled_mechanisms_are_offered(secured, stack):
    cluster = await secured(sasl_mechanisms=(SCRAM_SHA_512,))
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    response = await shake(client, SCRAM_SHA_256)
    assert (response.error_code, response.mechanisms) == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        [SCRAM_SHA_512],
    )


async def test_plain_needs_a_connection_that_others_cannot_read(client, cluster, stack):
    cluster.broker.kafka.is_private = False
    remote = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    response = await shake(remote, "PLAIN")
    assert "PLAIN" not in response.mechanisms
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert (
        await log_in(await stack.enter_async_context(Client(cluster.broker.kafka.listener)))
    ).error_code == 0


async def test_authenticate_without_a_handshake_is_refused(client):
    response = await authenticate(client, b"\0alice\0pencil")
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await is_closed(client)


async def test_a_second_handshake_during_the_exchange_is_refused(client):
    await shake(client)
    assert (await shake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await is_closed(client)


async def test_a_final_message_is_of_no_use_on_another_connection(client, cluster, stack):
    await shake(client)
    scram = ScramClient()
    first = await authenticate(client, scram.first())
    stolen = scram.final(bytes(first.auth_bytes))
    other = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    await shake(other)
    await authenticate(other, scram.first())
    assert (await authenticate(other, stolen)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_large_frame_is_read_after_the_login(client):
    await log_in(client)
    asked = [MetadataRequestTopic(name="a" * 249 + str(number)) for number in range(400)]
    response = await client.send(MetadataRequest(topics=asked), 9)
    assert len(response.topics) == len(asked)


async def test_a_large_frame_is_refused_by_its_length_before_the_login(client, cluster):
    malformed = cluster.broker.metrics.kafka.malformed._value.get()
    client._writer.write(struct.pack(">i", 64 * 1024 + 1))
    assert await is_closed(client)
    assert cluster.broker.metrics.kafka.malformed._value.get() == malformed + 1


async def test_a_login_that_takes_too_long_is_ended_by_the_sweep(client, cluster):
    await shake(client)
    server = cluster.broker.kafka
    (connection,) = server._connections
    server.sweep(connection._login_began_at + 9.9)
    assert not connection._transport.is_closing()
    server.sweep(connection._login_began_at + 10.1)
    assert await is_closed(client)


async def test_clients_that_have_not_authenticated_do_not_fill_the_log(cluster, stack, caplog):
    cluster.broker.kafka.lines_before_login = LineLimit(2)
    client = await cluster.connected(stack)
    with caplog.at_level("INFO"):
        for _ in range(5):
            stranger = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
            await send_and_expect_close(stranger, METADATA, 9)
        assert caplog.messages.count("Kafka connection closed") == 2
        await client.send_bytes(struct.pack(">hhih", 9999, 0, 1, -1))
        assert await is_closed(client)
        assert caplog.messages.count("Kafka connection closed") == 3


async def test_refused_connections_do_not_fill_the_log(secured, stack, caplog):
    cluster = await secured(connections_max=1)
    cluster.broker.kafka._refusal_lines = LineLimit(2)
    await cluster.connected(stack)
    for _ in range(5):
        assert await is_closed(await stack.enter_async_context(Client(cluster.broker.kafka.listener)))
    assert caplog.messages.count("Kafka connection refused; connection limit reached") == 2


# -- after the login


async def test_sasl_after_the_login_is_refused_and_the_connection_stays(client, clock):
    await log_in(client)
    clock.advance(5_000)
    assert (await shake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await authenticate(client, b"x")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await serves(client)


async def test_a_changed_password_closes_the_connection_with_the_next_request(client, cluster):
    await log_in(client)
    await cluster.user("bob")
    assert await serves(client)
    await cluster.user("alice", "another")
    await send_and_expect_close(client, METADATA, 9)


async def test_the_sweep_closes_a_connection_whose_user_is_gone(client, cluster):
    await log_in(client)
    server = cluster.broker.kafka
    server.sweep(0)
    await cluster.broker.log.write(lambda tx: security.delete_user(tx, "alice"))
    await cluster.broker.security.refresh()
    server.sweep(0)
    assert await is_closed(client)


async def test_a_client_that_waits_is_disconnected_when_its_user_is_gone(secured, stack, monkeypatch):
    """It need not send a request, and the sweep for idle connections need not be due."""
    limits = KafkaLimits(sweep_ms=10**9, revocation_sweep_ms=10)
    monkeypatch.setattr(Settings, "kafka_limits", lambda _: limits)
    cluster = await secured()
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    await log_in(client)
    await cluster.broker.log.write(lambda tx: security.delete_user(tx, "alice"))
    await cluster.broker.security.refresh()
    async with asyncio.timeout(GIVE_UP_S):
        assert await is_closed(client)


async def test_a_session_has_an_end_and_can_be_renewed(secured, stack, clock):
    cluster = await secured(max_reauth=HOUR_MS)
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    assert (await log_in(client, version=1)).session_lifetime_ms == HOUR_MS
    clock.advance(HOUR_MS - 1)
    assert await serves(client)
    assert (await log_in(client, version=1)).session_lifetime_ms == HOUR_MS
    clock.advance(HOUR_MS - 1)
    assert await serves(client)
    clock.advance(1)
    await send_and_expect_close(client, METADATA, 9)


async def test_an_expired_session_is_closed_by_the_sweep(secured, stack, clock):
    cluster = await secured(max_reauth=HOUR_MS)
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    await log_in(client)
    clock.advance(HOUR_MS)
    cluster.broker.kafka.sweep(0)
    assert await is_closed(client)


async def test_a_session_is_renewed_at_most_once_a_second(secured, stack, clock):
    cluster = await secured(max_reauth=HOUR_MS)
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    clock.advance(1)
    await log_in(client)
    clock.advance(999)
    assert (await shake(client)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    clock.advance(1)
    assert (await log_in(client)).error_code == 0
    assert await serves(client)


async def test_a_session_is_renewed_with_the_same_mechanism_only(secured, stack, clock):
    cluster = await secured(max_reauth=HOUR_MS)
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    await log_in(client)
    clock.advance(2_000)
    assert (await shake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await is_closed(client)


async def test_a_session_is_renewed_for_the_same_principal_only(secured, stack, clock):
    cluster = await secured(max_reauth=HOUR_MS)
    await cluster.user("bob")
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    await log_in(client)
    clock.advance(2_000)
    assert (await log_in_again_as(client, "bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await is_closed(client)


async def log_in_again_as(client, user):
    await shake(client)
    scram = ScramClient(user, PASSWORD)
    first = await authenticate(client, scram.first())
    return await authenticate(client, scram.final(bytes(first.auth_bytes)))


async def test_no_other_request_is_served_while_a_session_is_renewed(secured, stack, clock):
    cluster = await secured(max_reauth=HOUR_MS)
    client = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
    await log_in(client)
    clock.advance(2_000)
    await shake(client)
    await send_and_expect_close(client, METADATA, 9)


async def test_logins_and_failures_are_in_the_audit_log_without_secrets(client, cluster, stack, caplog):
    with caplog.at_level("INFO"):
        await log_in(client)
        other = await stack.enter_async_context(Client(cluster.broker.kafka.listener))
        await log_in(other, "alice", "wrong-secret")
    messages = [each.message for each in caplog.records if each.name == "millpond.security.audit"]
    assert messages == ["client authenticated", "authentication failed"]
    text = " ".join(str(vars(each)) for each in caplog.records)
    assert PASSWORD not in text
    assert "wrong-secret" not in text


async def test_a_super_user_needs_no_acls(cluster, stack):
    await cluster.user(ADMIN.name)
    client = await cluster.connected(stack, ADMIN.name)
    await cluster.broker.log.create_topic("orders", 1, {})
    found = (await client.send(MetadataRequest(topics=None), 9)).topics
    assert [each.name for each in found] == ["__consumer_offsets", "orders"]
    alice = await cluster.connected(stack, "alice")
    assert (await alice.send(MetadataRequest(topics=None), 9)).topics == []
    await cluster.grant(r.DESCRIBE_TOPIC)
    found = (await alice.send(MetadataRequest(topics=None), 9)).topics
    assert [each.name for each in found] == ["__consumer_offsets", "orders"]
