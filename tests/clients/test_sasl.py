"""Real clients that authenticate: with each mechanism, with the right and the wrong password. What they may do then is
decided by ACLs."""

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
from tests.clients.sasl_clients import (
    ITERATIONS,
    MECHANISMS,
    SECONDS_MAX,
    TOPIC,
    Confluent,
    Refused,
    every_client,
    start,
)

every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    broker = start(tmp_path_factory.mktemp("secured"))
    yield broker
    broker.stop()


@every_client
@every_mechanism
def test_with_the_right_password_a_client_does_what_its_acls_allow(server, client, mechanism):
    with closing(client(server.address, mechanism)) as connected:
        assert connected.send(TOPIC, b"v") == 0
        assert connected.read(TOPIC, 1) == [b"v"]
        assert connected.send("forbidden", b"v") == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


@every_client
@every_mechanism
def test_with_the_wrong_password_a_client_is_refused(server, client, mechanism):
    with pytest.raises(Refused), closing(client(server.address, mechanism, "wrong")) as connected:
        connected.send(TOPIC, b"v")


def test_an_administrator_manages_acls_and_users_with_librdkafka(server):
    settings = Confluent(server.address, "SCRAM-SHA-512", user="admin").config
    admin = AdminClient(settings)
    binding = AclBinding(
        *(ResourceType.TOPIC, "forbidden", ResourcePatternType.LITERAL),
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
    with closing(Confluent(server.address, "SCRAM-SHA-256", "secret", "bob")) as bob:
        assert bob.send("forbidden", b"v") == 0
        assert bob.send(TOPIC, b"v") == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
