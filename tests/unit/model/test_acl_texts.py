"""ACLs as text: what HTTP, gRPC and the command line write."""

import pytest

from millpond.model.acl_texts import AclText, acl_of, filter_of, selects_all, text_of
from millpond.model.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from millpond.model.errors import InvalidAcl

READ = AclText("topic", "orders", "User:alice", "read")
STORED = Acl(
    *(ResourceType.TOPIC, PatternType.LITERAL, "orders", "User:alice", "*"),
    *(AclOperation.READ, Permission.ALLOW),
)


def test_the_simplest_acl_needs_four_values():
    assert acl_of(READ) == STORED
    assert text_of(STORED) == READ


@pytest.mark.parametrize(
    ("kind", "operation"), [(kind, each) for kind, found in OPERATIONS.items() for each in found]
)
def test_every_acl_can_be_written(kind, operation):
    acl = STORED._replace(
        resource_type=kind, operation=operation, pattern_type=PatternType.PREFIXED, permission=Permission.DENY
    )
    if kind is ResourceType.CLUSTER:
        acl = acl._replace(name=CLUSTER_NAME)
    assert acl_of(text_of(acl)) == acl


def test_a_cluster_needs_no_name():
    assert acl_of(AclText("cluster", "", "User:alice", "alter")).name == CLUSTER_NAME


@pytest.mark.parametrize(
    "changed",
    [
        *[
            {"resource_type": "any"},
            {"resource_type": "unknown"},
            {"resource_type": "TOPIC"},
            {"resource_type": ""},
        ],
        *[{"operation": "any"}, {"operation": "fly"}, {"pattern_type": "match"}, {"permission": "any"}],
        *[{"name": ""}, {"principal": "alice"}, {"host": ""}],
    ],
)
def test_an_acl_that_no_request_can_match_is_refused(changed):
    with pytest.raises(InvalidAcl):
        acl_of(READ._replace(**changed))


def test_a_filter_selects_by_the_given_values():
    assert filter_of({}) == filter_of({"name": "", "operation": ""}) == AclFilter()
    assert filter_of(READ._asdict()) == AclFilter(*STORED)
    assert filter_of({"pattern_type": "match", "name": "a"}) == AclFilter(
        pattern_type=PatternType.MATCH, name="a"
    )
    with pytest.raises(InvalidAcl):
        filter_of({"operation": "fly"})


@pytest.mark.parametrize(
    ("given", "selects"),
    [
        *[({}, True), ({"pattern_type": "match"}, True), ({"operation": "any"}, True)],
        *[({"pattern_type": "literal"}, False), ({"pattern_type": "match", "name": "a"}, False)],
        *[({"host": "*"}, False), ({"permission": "deny"}, False)],
    ],
)
def test_a_filter_that_selects_all_acls_is_recognized(given, selects):
    assert selects_all(filter_of(given)) is selects
