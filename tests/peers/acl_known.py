"""Every difference that is expected between decisions of Apache Kafka and ours, with its reason. An entry has the
values of both brokers, so that it explains no other difference."""

from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from tests.peers.differential.comparing import ABSENT, Difference

DENIED_TOPIC: Final = "TOPIC_AUTHORIZATION_FAILED"
DENIED_TRANSACTION: Final = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NO_TOPIC: Final = "UNKNOWN_TOPIC_OR_PARTITION"

DELETE_CLUSTER: Final = (
    "In Kafka, ALL on the cluster includes the right to delete every topic. "
    "Here a client needs DELETE on the topic."
)
DESCRIBE_DENIED: Final = (
    "A client that may delete a topic, but is denied DESCRIBE on it, cannot delete it in Kafka. "
    "Here DELETE is enough."
)
CLUSTER_ACTION: Final = (
    "In Kafka, CLUSTER_ACTION on the cluster allows OffsetForLeaderEpoch for every topic, because brokers use it. Here "
    "a client needs DESCRIBE on the topic."
)
BOTH_MISSING: Final = (
    "A produce in a transaction without rights on the transactional id: Kafka refuses the whole request with error 53. "
    "Here the topic is checked first, so its error comes first."
)
EACH_USER: Final = (
    "DescribeUserScramCredentials without rights: Kafka repeats the error for each user of the request. Here it is in "
    "the response once."
)
NO_CONFIGS: Final = (
    "Configs of groups do not exist here, and those of a broker cannot be changed while it runs: a client with the "
    "rights gets error 42."
)
NOT_EXISTING: Final = (
    "If a client has the rights, and several things that its request names do not exist, the error may name another "
    "one of them."
)


class Expected(NamedTuple):
    """A pattern of paths, and the two values. `reason` is part of docs/reference/kafka.md."""

    path: str
    kafka: str
    ours: str
    reason: str

    def explains(self, each: Difference) -> bool:
        return fnmatchcase(each.path, self.path) and (each.kafka, each.ours) == (self.kafka, self.ours)


EXPECTED: Final = (
    Expected("delete topic *", "NONE", DENIED_TOPIC, DELETE_CLUSTER),
    Expected("delete topic *", NO_TOPIC, DENIED_TOPIC, DELETE_CLUSTER),
    Expected("delete topic *", DENIED_TOPIC, NO_TOPIC, DESCRIBE_DENIED),
    Expected("end of an epoch of *", "NONE", DENIED_TOPIC, CLUSTER_ACTION),
    Expected("end of an epoch of *", NO_TOPIC, DENIED_TOPIC, CLUSTER_ACTION),
    Expected("produce to * in transaction ab/*", DENIED_TRANSACTION, DENIED_TOPIC, BOTH_MISSING),
    Expected("produce to * in transaction ab/*", DENIED_TRANSACTION, NO_TOPIC, BOTH_MISSING),
    Expected("describe users/results/*", "CLUSTER_AUTHORIZATION_FAILED", ABSENT, EACH_USER),
    Expected("change configs of broker *", "NONE", "INVALID_REQUEST", NO_CONFIGS),
    Expected("* configs of group *", "NONE", "INVALID_REQUEST", NO_CONFIGS),
    Expected(
        "produce to * in transaction ab/*", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE", NOT_EXISTING
    ),
    *(
        Expected("commit offset of * in transaction ab/*", "INVALID_PRODUCER_ID_MAPPING", ours, NOT_EXISTING)
        for ours in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
    ),
)

KAFKA_FAILS: Final = (
    "CreateAcls with a code that only filters may have: Kafka responds with UNKNOWN_SERVER_ERROR. "
    "Here it is error 42."
)
EXPECTED_CREATIONS: Final = {
    "pattern match": KAFKA_FAILS,
    "any pattern": KAFKA_FAILS,
    "any type": KAFKA_FAILS,
    "any operation": KAFKA_FAILS,
    "any permission": KAFKA_FAILS,
    "no host": "CreateAcls with an empty host: Kafka stores an ACL that no client can match. Here it is error 42.",
    "every cluster": "CreateAcls for the cluster `*`: Kafka refuses it. Here it is the same as `kafka-cluster`.",
}


def explanation(each: Difference) -> str | None:
    return next((expected.reason for expected in EXPECTED if expected.explains(each)), None)


def reasons() -> list[str]:
    """All of them, each once."""
    return list(dict.fromkeys([*(each.reason for each in EXPECTED), *EXPECTED_CREATIONS.values()]))
