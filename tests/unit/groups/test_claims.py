"""Claims of readers that are no members: who has a group to itself, and for how long."""

import pytest

from millpond.groups.claims import Claim, Claims
from millpond.model.errors import GroupInUse, Overloaded

LEASE_MS = 15_000
ALL = Claim("g", "orders", None)
ONE = Claim("g", "orders", 1)


@pytest.fixture
def claims():
    return Claims(LEASE_MS, claims_max=3)


def test_a_second_reader_is_refused_and_told_who_has_it(claims):
    claims.take(ALL, "alice", 0)
    with pytest.raises(
        GroupInUse, match=r"topic 'orders' is already being read .* by alice; .* 15 s"
    ) as refused:
        claims.take(ALL, "bob", LEASE_MS - 1)
    assert (refused.value.facts["group"], refused.value.facts["topic"]) == ("g", "orders")
    claims.take(ALL, "alice", LEASE_MS - 1)


def test_a_claim_that_is_not_renewed_lapses(claims):
    claims.take(ALL, "alice", 0)
    claims.take(ALL, "alice", 10_000)
    with pytest.raises(GroupInUse):
        claims.take(ALL, "bob", 10_000 + LEASE_MS - 1)
    claims.take(ALL, "bob", 10_000 + LEASE_MS)
    with pytest.raises(GroupInUse, match="by bob"):
        claims.take(ALL, "alice", 10_000 + LEASE_MS + 1)


def test_a_claim_that_is_released_is_free_at_once_but_only_its_reader_can_release_it(claims):
    claims.take(ALL, "alice", 0)
    claims.release(ALL, "bob")
    with pytest.raises(GroupInUse):
        claims.take(ALL, "bob", 1)
    claims.release(ALL, "alice")
    claims.release(ALL, "alice")
    claims.take(ALL, "bob", 1)


@pytest.mark.parametrize(
    ("held", "wanted"),
    [(ALL, ONE), (ONE, ALL), (ONE, ONE)],
)
def test_claims_overlap_where_they_have_a_partition_in_common(claims, held, wanted):
    claims.take(held, "alice", 0)
    with pytest.raises(GroupInUse):
        claims.take(wanted, "bob", 0)


@pytest.mark.parametrize(
    "other", [Claim("g", "orders", 2), Claim("g", "returns", 1), Claim("h", "orders", None)]
)
def test_other_partitions_topics_and_groups_are_free(claims, other):
    claims.take(ONE, "alice", 0)
    claims.take(other, "bob", 0)


def test_a_reader_that_was_replaced_may_not_commit(claims):
    claims.check("g", "orders", [0, 1], "alice", 0)
    claims.take(ONE, "alice", 0)
    claims.check("g", "orders", [0, 1], "alice", 0)
    claims.check("g", "orders", [0], "bob", 0)
    with pytest.raises(GroupInUse):
        claims.check("g", "orders", [0, 1], "bob", 0)


def test_claims_are_bounded_and_lapsed_ones_do_not_count(claims):
    for number in range(3):
        claims.take(Claim("g", "orders", number), "alice", number)
    with pytest.raises(Overloaded):
        claims.take(Claim("g", "orders", 3), "alice", 3)
    claims.take(Claim("g", "orders", 0), "alice", 3)
    claims.take(Claim("g", "orders", 3), "alice", LEASE_MS + 1)
    assert len(claims) == 3
    claims.take(Claim("g", "orders", 3), "alice", 3 * LEASE_MS)
    assert len(claims) == 1
    assert claims._partitions == {("g", "orders"): {3}}
