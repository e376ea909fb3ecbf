"""What members of share groups may rely on: the same with Millpond (`test_share_groups.py`) and with Apache Kafka
(`tests/peers/test_share_consumer.py`), which shows that it is what Kafka does."""

import time

import pytest
from tests.clients.patience import SECONDS_MAX
from tests.clients.share_members import (
    ACCEPT,
    EXPLICIT,
    IMPLICIT,
    LIMIT,
    REJECT,
    RELEASE,
    Delivered,
    Share,
    ShareMember,
    until,
    values,
)


def messages_accepted_by_the_next_poll_or_a_commit_never_come_again(share: Share) -> None:
    share.create()
    share.produce(*range(10))
    first = share.member(IMPLICIT)
    found = until(first.poll, lambda found: len(found) >= 10)
    assert [each.value for each in found] == [b"%d" % number for number in range(10)]
    assert {each.count for each in found} == {1}
    share.produce("next")
    assert values(until(first.poll, bool)) == [
        b"next"
    ]  # this poll has accepted what the earlier ones returned
    assert first.commit() == [None]
    first.close()

    share.produce("last")
    second = share.member(IMPLICIT)
    assert values(until(second.poll, bool)) == [b"last"]


def members_say_what_becomes_of_each_message(share: Share) -> None:
    share.create()
    share.produce("good", "bad", "later")
    member = share.member(EXPLICIT)
    left = {b"good": ACCEPT, b"bad": REJECT, b"later": RELEASE}
    while left:
        for each in until(member.poll, bool):
            assert each.count == 1
            member.acknowledge([each], left.pop(each.value))
        assert set(member.commit()) == {None}
    [again] = until(member.poll, bool)
    assert (again.value, again.count) == (b"later", 2)
    member.settle([again])
    share.produce("last")
    last = until(member.poll, bool)
    assert values(last) == [b"last"]
    member.settle(last)


def a_message_whose_lock_has_ended_comes_to_another_member(share: Share) -> None:
    share.create()
    share.produce("slow")
    slow = share.member(EXPLICIT)
    [message] = until(slow.poll, bool)
    other = share.member(EXPLICIT)
    share.pass_lock()
    [again] = until(other.poll, bool)
    assert (again.value, again.count) == (b"slow", 2)
    slow.acknowledge([message])
    assert slow.commit() == ["INVALID_RECORD_STATE"]
    other.settle([again])


def members_share_a_partition(share: Share) -> None:
    """Messages that one member has are not delivered to the other one."""
    share.create()
    share.produce(*range(40))
    members = [share.member(EXPLICIT, max_poll_records=5) for _ in range(2)]
    held: list[list[Delivered]] = [until(member.poll, bool) for member in members]
    assert all(len(each) < 40 for each in held)
    found = [message for each in held for message in each]
    assert len(set(found)) == len(found)
    for member, messages in zip(members, held, strict=True):
        member.settle(messages)
    give_up = time.monotonic() + SECONDS_MAX
    while len(found) < 40:
        assert time.monotonic() < give_up, found
        for member in members:
            if messages := member.poll():
                found += messages
                member.settle(messages)
    assert sorted(int(each.value) for each in found) == list(range(40))
    assert {each.count for each in found} == {1}


def a_message_that_is_released_too_often_comes_no_more(share: Share) -> None:
    share.create()
    share.configure({LIMIT: "2"})
    share.produce("poison")
    member = share.member(EXPLICIT)
    for count in (1, 2):
        [message] = until(member.poll, bool)
        assert (message.value, message.count) == (b"poison", count)
        member.settle([message], RELEASE)
    share.produce("last")
    last = until(member.poll, bool)
    assert values(last) == [b"last"]
    member.settle(last)


def a_member_that_closes_gives_back_what_it_has_not_acknowledged(share: Share) -> None:
    share.create()
    share.produce("kept")
    first = share.member(EXPLICIT)
    [message] = until(first.poll, bool)
    assert message.count == 1
    first.close()
    second = share.member(EXPLICIT)
    [again] = until(second.poll, bool)
    assert (again.value, again.count) == (b"kept", 2)
    second.settle([again])


def a_group_starts_at_the_end_unless_configured(share: Share) -> None:
    share.create()
    share.configure({"share.auto.offset.reset": "latest"})
    share.produce("early")
    member = share.member(IMPLICIT)
    found = _first(share, member)
    assert b"early" not in values(found)


def _first(share: Share, member: ShareMember) -> list[Delivered]:
    """What comes first, while messages are written: the group starts at some time meanwhile."""

    def poll() -> list[Delivered]:
        share.produce("late")
        return member.poll()

    return until(poll, bool)


def members_receive_messages_of_all_partitions(share: Share) -> None:
    share.create(partitions=4)
    for number in range(20):
        share.produce(number, partition=number % 4)
    members = [share.member(IMPLICIT) for _ in range(3)]
    turns = iter(range(10**9))

    def poll() -> list[Delivered]:
        return members[next(turns) % 3].poll()

    found = until(poll, lambda found: len(found) >= 20)
    assert sorted(int(each.value) for each in found) == list(range(20))


def aborted_messages_come_unless_the_group_reads_committed(share: Share) -> None:
    share.create()
    share.configure({"share.isolation.level": "read_committed"})
    share.abort("aborted")
    share.produce("committed")
    member = share.member(IMPLICIT)
    assert values(until(member.poll, bool)) == [b"committed"]


def aborted_messages_come_to_a_group_that_reads_uncommitted(share: Share) -> None:
    share.create()
    share.abort("aborted")
    share.produce("committed")
    member = share.member(IMPLICIT)
    assert values(until(member.poll, lambda found: len(found) >= 2)) == [b"aborted", b"committed"]


SCENARIOS = (
    messages_accepted_by_the_next_poll_or_a_commit_never_come_again,
    members_say_what_becomes_of_each_message,
    a_message_whose_lock_has_ended_comes_to_another_member,
    members_share_a_partition,
    a_message_that_is_released_too_often_comes_no_more,
    a_member_that_closes_gives_back_what_it_has_not_acknowledged,
    a_group_starts_at_the_end_unless_configured,
    members_receive_messages_of_all_partitions,
    aborted_messages_come_unless_the_group_reads_committed,
    aborted_messages_come_to_a_group_that_reads_uncommitted,
)
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.__name__)
