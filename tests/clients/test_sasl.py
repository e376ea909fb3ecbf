"""Users and ACLs that an administrator manages with a Kafka client. Without TLS, as on this machine only."""

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
from tests.clients.secured_clients import FORBIDDEN, ITERATIONS, SECONDS_MAX, TOPIC, Confluent, Login, start


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    broker = start(tmp_path_factory.mktemp("secured"))
    yield broker
    broker.stop()


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
