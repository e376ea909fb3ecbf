"""Real clients and what an administrator sets: quotas, beyond which they are told to wait, and everything they send and
read arrives; users and ACLs. Without TLS, as on this machine only."""

import asyncio
import time
from contextlib import closing

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.clients.secured_clients import (
    CLIENTS,
    FORBIDDEN,
    ITERATIONS,
    SECONDS_MAX,
    TOPIC,
    Confluent,
    Login,
    start,
)
from tests.unit.frontends.kafka.secured import log_in
from tests.unit.frontends.kafka.wire import Client

from millpond.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlteredQuotaEntity,
    QuotaAlteration,
    QuotaOperation,
)

RATE = 140_000.0
"""A message of `VALUE` alone exceeds it, however long the broker was idle."""
VALUE = bytes(150_000)
ALICE, ADMIN = Login("SCRAM-SHA-256"), Login("SCRAM-SHA-256", user="admin")


async def set_quotas(address, **values):
    user = AlteredQuotaEntity(entity_type="user", entity_name="alice")
    operations = [QuotaOperation(key=key, value=value, remove=False) for key, value in values.items()]
    request = AlterClientQuotasRequest(
        entries=[QuotaAlteration(entity=[user], ops=operations)], validate_only=False
    )
    async with Client(address) as admin:
        assert (await log_in(admin, "admin")).error_code == 0
        assert [each.error_code for each in (await admin.send(request, 1)).entries] == [0]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    broker = start(tmp_path_factory.mktemp("throttled"))
    asyncio.run(set_quotas(broker.address, producer_byte_rate=RATE, consumer_byte_rate=RATE))
    with closing(Confluent(broker.address, ADMIN)) as admin:
        assert admin.send(TOPIC, VALUE) == 0
    yield broker
    broker.stop()


def test_consumers_beyond_their_quota_read_everything(server):
    """They share the quota, so that the later ones first get empty responses."""
    for kind in CLIENTS:
        with closing(kind(server.address, ALICE)) as client:
            assert client.read(TOPIC, 1) == [VALUE], kind


def test_librdkafka_is_told_to_wait(server):
    waits = []
    config = Confluent(server.address, ALICE).config | {"throttle_cb": waits.append}
    producer, errors = confluent_kafka.Producer(config), []
    producer.produce(TOPIC, VALUE, on_delivery=lambda error, _: errors.append(error))
    give_up = time.monotonic() + SECONDS_MAX
    while not (waits and errors) and time.monotonic() < give_up:
        producer.poll(0.05)
    assert errors == [None]
    assert waits[0].throttle_time >= (len(VALUE) - RATE) / RATE


def test_an_administrator_manages_acls_and_users_with_librdkafka(server):
    settings = Confluent(server.address, Login("SCRAM-SHA-512", user="admin")).config
    admin = AdminClient(settings)
    binding = AclBinding(
        *(ResourceType.TOPIC, FORBIDDEN, ResourcePatternType.LITERAL),
        *("User:bob", "*", AclOperation.WRITE, AclPermissionType.ALLOW),
    )
    for created in admin.create_acls([binding]).values():
        created.result(SECONDS_MAX)
    upsertion = confluent_kafka.admin.UserScramCredentialUpsertion(
        "bob",
        confluent_kafka.admin.ScramCredentialInfo(
            confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256, ITERATIONS
        ),
        b"secret",
    )
    for altered in admin.alter_user_scram_credentials([upsertion]).values():
        altered.result(SECONDS_MAX)
    with closing(Confluent(server.address, Login("SCRAM-SHA-256", "bob", "secret"))) as bob:
        assert bob.send(FORBIDDEN, b"v") == 0
        assert bob.send(TOPIC, b"v") == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
