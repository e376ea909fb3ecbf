"""Apache Kafka with its StandardAuthorizer and Millpond, with the same random ACLs and the same requests: every error
code and every bit of authorised operations is the same, or the table says why not.

A difference in the table has both values, so that it explains no other one.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

import pytest
from tests.peers.acl_actions import actions
from tests.peers.acl_comparison import (
    USERS,
    Subject,
    compare,
    kafka_subject,
    millpond_subject,
)
from tests.peers.acl_sets import random_acls
from tests.peers.differential.comparing import ABSENT, Difference
from tests.peers.support import available

from millpond.model.acls import AclOperation, PatternType, Permission, ResourceType
from millpond.protocol.messages.acls import AclCreation
from peers import kafka

SEED = 19
ROUNDS = 3
ACLS_PER_USER = 7


class Expected(NamedTuple):
    """A pattern of paths, and the two values."""

    path: str
    kafka: str
    ours: str
    reason: str

    def explains(self, each: Difference) -> bool:
        return fnmatchcase(each.path, self.path) and (each.kafka, each.ours) == (self.kafka, self.ours)


DENIED_TOPIC = "TOPIC_AUTHORIZATION_FAILED"
DENIED_TRANSACTION = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
CLUSTER_ACTION = "CLUSTER_ACTION is the right of Kafka's own brokers; a client needs DESCRIBE on the topic."
DELETE_CLUSTER = "Who has ALL on the cluster may delete any topic of Kafka's; ours needs DELETE on the topic."
BOTH_MISSING = "Rights on topic and transactional id are missing; ours names the topic first."
EXPECTED = (
    # Both refuse, or both serve, and say it in another way
    Expected("produce to * in transaction ab/*", DENIED_TRANSACTION, DENIED_TOPIC, BOTH_MISSING),
    Expected(
        "produce to * in transaction ab/*",
        DENIED_TRANSACTION,
        "UNKNOWN_TOPIC_OR_PARTITION",
        "A client with WRITE on the topic may learn that it does not exist.",
    ),
    Expected(
        "produce to * in transaction ab/*",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "Both are authorised, and the transaction is not open.",
    ),
    Expected(
        "commit offset of * in transaction ab/*",
        "INVALID_PRODUCER_ID_MAPPING",
        "UNKNOWN_MEMBER_ID",
        "Both are authorised, and neither the producer nor the member exists.",
    ),
    Expected(
        "describe users/results/*",
        "CLUSTER_AUTHORIZATION_FAILED",
        ABSENT,
        "Kafka repeats the error for each user.",
    ),
    # Authorised, but there is nothing to describe or to change
    Expected("change configs of broker *", "NONE", "INVALID_REQUEST", "Settings need a restart."),
    Expected("* configs of group *", "NONE", "INVALID_REQUEST", "Groups have no configs."),
    # Rights on the cluster that also count for topics
    Expected("end of an epoch of *", "NONE", DENIED_TOPIC, CLUSTER_ACTION),
    Expected("end of an epoch of *", "UNKNOWN_TOPIC_OR_PARTITION", DENIED_TOPIC, CLUSTER_ACTION),
    Expected("delete topic *", "NONE", DENIED_TOPIC, DELETE_CLUSTER),
    Expected("delete topic *", "UNKNOWN_TOPIC_OR_PARTITION", DENIED_TOPIC, DELETE_CLUSTER),
)


def is_expected(each: Difference) -> bool:
    return any(expected.explains(each) for expected in EXPECTED)


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory) -> Iterator[Subject]:
    available(kafka.jars)
    with kafka_subject(tmp_path_factory.mktemp("kafka")) as subject:
        subject.prepare()
        yield subject


@pytest.fixture(scope="module")
def ours(tmp_path_factory) -> Iterator[Subject]:
    with millpond_subject(tmp_path_factory.mktemp("millpond"), asyncio.run) as subject:
        subject.prepare()
        yield subject


@pytest.mark.peers
def test_random_acls_decide_as_those_of_kafka(kafkas, ours):
    dice = random.Random(SEED)
    done = list(actions())
    principals = [f"User:{user}" for user in USERS]
    pairs, found = 0, []
    for _ in range(ROUNDS):
        acls = random_acls(dice, principals, ACLS_PER_USER * len(principals))
        count, seen = compare(kafkas, ours, acls, done, is_expected)
        pairs += count
        found += seen
    reasons = Counter(
        next(e.reason for e in EXPECTED if e.explains(each)) for each in found if is_expected(each)
    )
    print(f"{pairs} pairs of rights and action, {len(done)} actions, {len(found)} differences; seed {SEED}")
    print(*(f"  {count:5d} {reason}" for reason, count in reasons.most_common()), sep="\n")
    assert [str(each) for each in found if not is_expected(each)] == []


def creation(**changed: object) -> AclCreation:
    usual = {
        "resource_type": ResourceType.TOPIC,
        "resource_name": "a",
        "resource_pattern_type": PatternType.LITERAL,
        "principal": "User:x",
        "host": "*",
        "operation": AclOperation.READ,
        "permission_type": Permission.ALLOW,
    }
    return AclCreation(**usual | changed)


CREATIONS = {
    "as usual": creation(),
    "again": creation(),
    "a wildcard": creation(resource_name="*"),
    "a prefix that is a wildcard": creation(resource_name="*", resource_pattern_type=PatternType.PREFIXED),
    "the cluster": creation(resource_type=ResourceType.CLUSTER, resource_name="kafka-cluster"),
    "another cluster": creation(resource_type=ResourceType.CLUSTER, resource_name="another"),
    "every cluster": creation(resource_type=ResourceType.CLUSTER, resource_name="*"),
    "an operation that topics do not have": creation(operation=AclOperation.CLUSTER_ACTION),
    "no name": creation(resource_name=""),
    "pattern match": creation(resource_pattern_type=PatternType.MATCH),
    "any pattern": creation(resource_pattern_type=PatternType.ANY),
    "unknown pattern": creation(resource_pattern_type=99),
    "any type": creation(resource_type=ResourceType.ANY),
    "unknown type": creation(resource_type=99),
    "any operation": creation(operation=AclOperation.ANY),
    "unknown operation": creation(operation=99),
    "any permission": creation(permission_type=Permission.ANY),
    "unknown permission": creation(permission_type=99),
    "no kind of principal": creation(principal="alice"),
    "another kind of principal": creation(principal="Group:staff"),
    "no principal": creation(principal=""),
    "no host": creation(host=""),
    "a name as host": creation(host="broker.example"),
}


KAFKA_FAILS = "Kafka answers UNKNOWN_SERVER_ERROR; the request is invalid."
EXPECTED_CREATIONS = {
    "pattern match": KAFKA_FAILS,
    "any pattern": KAFKA_FAILS,
    "any type": KAFKA_FAILS,
    "any operation": KAFKA_FAILS,
    "any permission": KAFKA_FAILS,
    "no host": "Kafka stores an ACL that no client can match.",
    "every cluster": "Kafka refuses `*`; it means the only one there is.",
}


@pytest.mark.peers
def test_acls_are_accepted_or_refused_as_by_kafka(kafkas, ours):
    seen = {name: (kafkas.create_acl(each), ours.create_acl(each)) for name, each in CREATIONS.items()}
    differing = {name for name, (theirs, mine) in seen.items() if theirs != mine}
    assert differing == set(EXPECTED_CREATIONS), seen
