"""Decisions by ACLs, against a brute-force reading of Kafka's rules."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.acls import (
    EVERY_USER,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
)
from millpond.model.errors import InvalidAcl
from millpond.model.principals import Principal
from millpond.security.rights import NAMES_CACHED_MAX, Rights

ALICE = Principal("User", "alice")
NAMES = ("a", "ab", "abc", "b", "ba", "c")
ASKED = (
    *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER),
    *(AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS),
)
IMPLYING_DESCRIBE = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)

ACLS = st.builds(
    Acl,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    name=st.sampled_from([*NAMES, WILDCARD]),
    principal=st.sampled_from(["User:alice", "User:bob", EVERY_USER]),
    host=st.sampled_from(["192.0.2.1", "192.0.2.2", WILDCARD]),
    operation=st.sampled_from([AclOperation.ALL, *ASKED]),
    permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
)


def acl(
    permission: Permission = Permission.ALLOW,
    operation: AclOperation = AclOperation.READ,
    name: str = "orders",
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = WILDCARD,
    resource: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(resource, pattern, name, principal, host, operation, permission)


def allows(acls: list[Acl], operation: AclOperation, name: str, **more: object) -> bool:
    rights = Rights(ALICE, "192.0.2.1", acls, **more)  # type: ignore[arg-type]
    return bool(rights.allowed(ResourceType.TOPIC, name) >> operation & 1)


def naive(acls: list[Acl], operation: AclOperation, name: str, host: str) -> bool:
    def covers(each: Acl) -> bool:
        by_name = (
            name.startswith(each.name)
            if each.pattern_type is PatternType.PREFIXED
            else each.name in (name, WILDCARD)
        )
        return (
            each.resource_type is ResourceType.TOPIC
            and by_name
            and each.principal in ("User:alice", EVERY_USER)
            and each.host in (host, WILDCARD)
        )

    found = [each for each in acls if covers(each)]
    if any(e.permission is Permission.DENY and e.operation in (operation, AclOperation.ALL) for e in found):
        return False
    enough = {operation, AclOperation.ALL}
    if operation is AclOperation.DESCRIBE:
        enough |= set(IMPLYING_DESCRIBE)
    if operation is AclOperation.DESCRIBE_CONFIGS:
        enough.add(AclOperation.ALTER_CONFIGS)
    return any(e.permission is Permission.ALLOW and e.operation in enough for e in found)


@given(st.lists(ACLS, max_size=8))
def test_every_decision_is_that_of_a_naive_reading(acls: list[Acl]) -> None:
    for host in ("192.0.2.1", "192.0.2.3"):
        rights = Rights(ALICE, host, acls)
        for name, operation in itertools.product(NAMES, ASKED):
            decided = bool(rights.allowed(ResourceType.TOPIC, name) >> operation & 1)
            assert decided == naive(acls, operation, name, host), (name, operation, host)


@given(st.lists(ACLS, max_size=6))
def test_somewhere_is_where_some_name_is_allowed(acls: list[Acl]) -> None:
    """With longer names than any pattern: a prefix has room below it, unless a DENY covers it."""
    rights = Rights(ALICE, "192.0.2.1", acls)
    candidates = [*NAMES, *(f"{name}-{number}" for name in NAMES for number in range(2)), "zz"]
    literal_denies = {
        each.name
        for each in acls
        if each.permission is Permission.DENY and each.pattern_type is PatternType.LITERAL
    }
    allowed = any(
        rights.allowed(ResourceType.TOPIC, name) >> AclOperation.WRITE & 1
        for name in candidates
        if name not in literal_denies
    )
    if allowed:
        assert rights.allows_somewhere(AclOperation.WRITE, ResourceType.TOPIC)


def test_nothing_is_allowed_without_an_acl() -> None:
    assert not allows([], AclOperation.READ, "orders")


def test_a_super_user_may_do_everything() -> None:
    denied = [acl(Permission.DENY, AclOperation.ALL, WILDCARD)]
    assert allows(denied, AclOperation.WRITE, "orders", is_super_user=True)


def test_a_deny_wins_over_every_allow() -> None:
    both = [acl(operation=AclOperation.ALL), acl(Permission.DENY, AclOperation.READ, WILDCARD)]
    assert not allows(both, AclOperation.READ, "orders")
    assert allows(both, AclOperation.WRITE, "orders")


def test_a_deny_of_describe_leaves_read() -> None:
    both = [acl(operation=AclOperation.READ), acl(Permission.DENY, AclOperation.DESCRIBE)]
    assert allows(both, AclOperation.READ, "orders")
    assert not allows(both, AclOperation.DESCRIBE, "orders")


def test_a_deny_of_read_does_not_deny_describe() -> None:
    both = [acl(operation=AclOperation.WRITE), acl(Permission.DENY, AclOperation.READ)]
    assert allows(both, AclOperation.DESCRIBE, "orders")


def test_a_prefix_ends_where_the_name_differs() -> None:
    prefixed = [acl(name="team-", pattern=PatternType.PREFIXED)]
    assert allows(prefixed, AclOperation.READ, "team-a")
    assert allows(prefixed, AclOperation.READ, "team-")
    assert not allows(prefixed, AclOperation.READ, "team")


def test_a_wildcard_prefix_is_a_name_with_an_asterisk() -> None:
    """Only literal patterns have the wildcard."""
    assert not allows([acl(name=WILDCARD, pattern=PatternType.PREFIXED)], AclOperation.READ, "orders")


def test_the_cache_does_not_grow_with_the_names_that_clients_invent() -> None:
    rights = Rights(ALICE, "192.0.2.1", [acl()])
    for number in range(NAMES_CACHED_MAX + 10):
        rights.allowed(ResourceType.TOPIC, f"invented-{number}")
    assert len(rights._cache) <= NAMES_CACHED_MAX
    assert rights.allowed(ResourceType.TOPIC, "orders")


def test_long_names_are_decided_and_not_kept() -> None:
    prefixed = acl(name="team-", pattern=PatternType.PREFIXED)
    rights = Rights(ALICE, "192.0.2.1", [prefixed])
    assert rights.allowed(ResourceType.TOPIC, "team-" + "x" * 1_000_000)
    assert not rights.allowed(ResourceType.TOPIC, "x" * 1_000_000)
    assert not rights._cache


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl(operation=AclOperation.WRITE)], True),
        ([acl(operation=AclOperation.ALL)], True),
        ([acl(operation=AclOperation.READ)], False),
        ([acl(operation=AclOperation.WRITE), acl(Permission.DENY, AclOperation.WRITE)], False),
        ([acl(operation=AclOperation.WRITE), acl(Permission.DENY, AclOperation.ALL, WILDCARD)], False),
        ([acl(operation=AclOperation.WRITE, name=WILDCARD), acl(Permission.DENY, AclOperation.WRITE)], True),
        (
            [
                acl(operation=AclOperation.WRITE, name="orders"),
                acl(Permission.DENY, AclOperation.WRITE, "ord", pattern=PatternType.PREFIXED),
            ],
            False,
        ),
        (
            [
                acl(operation=AclOperation.WRITE, name="ord", pattern=PatternType.PREFIXED),
                acl(Permission.DENY, AclOperation.WRITE, "orders", pattern=PatternType.PREFIXED),
            ],
            True,
        ),
        ([acl(operation=AclOperation.WRITE, host="192.0.2.2")], False),
        ([acl(operation=AclOperation.WRITE, resource=ResourceType.GROUP)], False),
    ],
)
def test_writing_somewhere(acls: list[Acl], expected: bool) -> None:
    rights = Rights(ALICE, "192.0.2.1", acls)
    assert rights.allows_somewhere(AclOperation.WRITE, ResourceType.TOPIC) is expected


def test_a_filter_by_match_selects_every_pattern_that_covers_the_name() -> None:
    matching = AclFilter(ResourceType.TOPIC, PatternType.MATCH, "orders")
    assert matching.matches(acl())
    assert matching.matches(acl(name=WILDCARD))
    assert matching.matches(acl(name="ord", pattern=PatternType.PREFIXED))
    assert not matching.matches(acl(name="ord"))
    assert not matching.matches(acl(name="orders2", pattern=PatternType.PREFIXED))


def test_a_filter_by_pattern_compares_names() -> None:
    prefixed = AclFilter(pattern_type=PatternType.PREFIXED, name="ord")
    assert prefixed.matches(acl(name="ord", pattern=PatternType.PREFIXED))
    assert not prefixed.matches(acl(name="ord"))
    assert not prefixed.matches(acl(name="orders", pattern=PatternType.PREFIXED))
    assert AclFilter(pattern_type=PatternType.ANY, name="ord").matches(acl(name="ord"))


@given(ACLS, ACLS)
def test_a_filter_with_all_fields_selects_exactly_that_acl(one: Acl, other: Acl) -> None:
    exact = AclFilter(*one)
    assert exact.matches(one)
    assert exact.matches(other) == (one == other)


@pytest.mark.parametrize(
    "changed",
    [
        {"resource_type": ResourceType.ANY},
        {"pattern_type": PatternType.MATCH},
        {"pattern_type": PatternType.ANY},
        {"name": ""},
        {"operation": AclOperation.ANY},
        {"operation": AclOperation.UNKNOWN},
        {"permission": Permission.ANY},
        {"host": ""},
        {"principal": "alice"},
        {"principal": ":alice"},
        {"resource_type": ResourceType.CLUSTER},
    ],
)
def test_an_acl_that_no_request_can_match_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(InvalidAcl):
        check_acl(acl()._replace(**changed))  # type: ignore[arg-type]
