"""Apache Kafka with its StandardAuthorizer and Millpond, with the same random ACLs and the same requests: every error
code and every bit of authorised operations is the same, or the table says why not.

The table is in `acl_known.py`.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.peers.acl_actions import actions
from tests.peers.acl_comparison import (
    USERS,
    Subject,
    compare,
    kafka_subject,
    millpond_subject,
)
from tests.peers.acl_known import EXPECTED_CREATIONS, explanation
from tests.peers.acl_sets import random_acls
from tests.peers.support import available

from millpond.model.acls import AclOperation, PatternType, Permission, ResourceType
from millpond.protocol.messages.acls import AclCreation
from peers import kafka

SEED = 19
ROUNDS = 3
ACLS_PER_USER = 7


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
    rounds = [
        compare(
            kafkas,
            ours,
            random_acls(dice, principals, ACLS_PER_USER * len(principals)),
            done,
            lambda each: explanation(each) is not None,
        )
        for _ in range(ROUNDS)
    ]
    found = [each for one in rounds for each in one.differences]
    reasons = Counter(explanation(each) for each in found)
    pairs, refused = sum(each.actions for each in rounds), sum(each.refused for each in rounds)
    print(f"{pairs} pairs of ACLs and action ({len(done)} actions), {refused} refused; seed {SEED}")
    print(f"{len(found)} differences:")
    print(*(f"  {count:5d} {reason}" for reason, count in reasons.most_common()), sep="\n")
    assert [str(each) for each in found if explanation(each) is None] == []


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


@pytest.mark.peers
def test_acls_are_accepted_or_refused_as_by_kafka(kafkas, ours):
    seen = {name: (kafkas.create_acl(each), ours.create_acl(each)) for name, each in CREATIONS.items()}
    differing = {name for name, (theirs, mine) in seen.items() if theirs != mine}
    assert differing == set(EXPECTED_CREATIONS), seen
