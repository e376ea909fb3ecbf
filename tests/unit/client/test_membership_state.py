"""What a member of a group owns and reports, without I/O."""

import pytest

from millpond.client.membership_state import NOTHING, AssignedPartition, MembershipState
from millpond.stubs import admin_pb2


def parts(*numbers, topic="t", topic_id="id"):
    return frozenset(AssignedPartition(topic, topic_id, number) for number in numbers)


def response(epoch, assigned=None):
    found = admin_pb2.GroupHeartbeatResponse(member_id="m", member_epoch=epoch, heartbeat_interval_ms=5_000)
    if assigned is not None:
        found.assignment.SetInParent()
        for topic, topic_id, number in sorted(assigned):
            found.assignment.topics.add(topic=topic, topic_id=topic_id, partitions=[number])
    return found


def owned(request):
    return {(each.topic_id, number) for each in request.owned.topics for number in each.partitions}


@pytest.fixture
def membership():
    return MembershipState("g", ["t", "u"], "m")


def joined(membership, *numbers):
    membership.accept(membership.heartbeat(), response(1, parts(*numbers)))
    membership.take_over(membership.added)
    return membership


def test_a_join_owns_nothing_and_describes_the_member(membership):
    request = membership.heartbeat()
    assert (request.group, request.member_id, request.member_epoch) == ("g", "m", 0)
    assert (list(request.topics), request.rebalance_timeout_ms) == (["t", "u"], 300_000)
    assert request.HasField("owned")
    assert not request.owned.topics


def test_what_is_assigned_is_reported_before_it_was_taken_over(membership):
    """A heartbeat without it would say that it is not read, and it may be read before the response."""
    membership.accept(membership.heartbeat(), response(1, parts(0, 1)))
    assert (membership.is_joined, membership.added, membership.owned) == (True, parts(0, 1), NOTHING)
    assert owned(membership.heartbeat()) == {("id", 0), ("id", 1)}
    membership.take_over(parts(1))
    assert (membership.added, membership.owned) == (parts(0), parts(1))
    assert owned(membership.heartbeat()) == {("id", 0), ("id", 1)}


def test_what_was_never_taken_over_is_given_up_at_once(membership):
    joined(membership, 0)
    membership.accept(membership.heartbeat(), response(2, parts(0, 1)))
    membership.accept(membership.heartbeat(), response(2, parts(0)))
    assert (membership.revoked, owned(membership.heartbeat())) == (NOTHING, {("id", 0)})


def test_what_is_revoked_while_it_is_taken_over_is_reported_until_that_is_undone(membership):
    membership.accept(membership.heartbeat(), response(1, parts(0, 1)))
    membership.take_over(parts(0, 1))
    membership.accept(membership.heartbeat(), response(1, parts(0)))
    assert (membership.revoked, owned(membership.heartbeat())) == (parts(1), {("id", 0), ("id", 1)})
    membership.undo_take_over(parts(0, 1))
    assert (membership.added, membership.revoked) == (parts(0), NOTHING)
    assert owned(membership.heartbeat()) == {("id", 0)}


def test_what_is_revoked_is_reported_until_it_was_given_up(membership):
    joined(membership, 0, 1)
    membership.accept(membership.heartbeat(), response(1, parts(0)))
    assert membership.revoked == parts(1)
    assert owned(membership.heartbeat()) == {("id", 0), ("id", 1)}
    membership.give_up()
    assert (membership.revoked, owned(membership.heartbeat())) == (NOTHING, {("id", 0)})


def test_a_response_without_an_assignment_changes_the_epoch_only(membership):
    joined(membership, 0)
    membership.accept(membership.heartbeat(), response(7))
    assert (membership.epoch, membership.assigned) == (7, parts(0))


def test_a_topic_that_was_created_again_is_another_one(membership):
    joined(membership, 0)
    new = parts(0, topic_id="new")
    membership.accept(membership.heartbeat(), response(2, new))
    assert (membership.revoked, membership.added) == (parts(0), new)


def test_a_lost_membership_revokes_everything_and_joins_again(membership):
    joined(membership, 0, 1)
    membership.end()
    assert (membership.is_joined, membership.revoked, membership.added) == (False, parts(0, 1), NOTHING)
    membership.give_up()
    assert membership.heartbeat().member_epoch == 0


def test_nothing_joins_before_what_was_lost_is_dropped(membership):
    joined(membership, 0).end()
    with pytest.raises(AssertionError, match="owns nothing"):
        membership.heartbeat()


def test_the_response_to_a_heartbeat_before_the_loss_is_void(membership):
    before = joined(membership, 0).heartbeat()
    membership.end()
    membership.accept(before, response(2, parts(0)))
    assert (membership.epoch, membership.assigned) == (0, NOTHING)


def test_leaving_needs_no_epoch(membership):
    request = joined(membership, 0).leaving()
    assert (request.member_id, request.member_epoch) == ("m", -1)
    assert not request.HasField("owned")
