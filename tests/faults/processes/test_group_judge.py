"""The judge of `test_group_chaos.py`: what it must find, and what it must not take for a fault."""

from tests.faults.processes.group_judge import MemberLog, believed_twice, owned_twice


def log(member: str, *lines: tuple[float, str, float | None]) -> MemberLog:
    """Lines about partition `t-0`: when, what, and when it was sent."""
    found = MemberLog(member)
    for at, event, sent in lines:
        line = {"at": at, "event": event, "partitions": ["t-0"]}
        found.add(line | {"sent": sent, "offsets": {"t-0": int(at)}, "reason": "FENCED"})
    return found


def overlaps(*logs: MemberLog) -> tuple[int, list[float]]:
    ownerships = [each for log in logs for each in log.ownerships()]
    return len(owned_twice(ownerships)), believed_twice(ownerships)


def test_a_partition_that_is_released_before_it_is_assigned_is_no_overlap():
    former = log("a", (1, "assigned", None), (3, "committed", 2), (4, "revoked", None))
    assert overlaps(former, log("b", (5, "assigned", None), (7, "committed", 6))) == (0, [])


def test_a_commit_accepted_after_another_was_assigned_the_partition_is_found():
    former = log("a", (1, "assigned", None), (5, "committed", 4), (6, "revoked", None))
    assert overlaps(former, log("b", (3, "assigned", None)))[0] == 1


def test_a_commit_that_was_sent_before_another_was_assigned_proves_nothing():
    former = log("a", (1, "assigned", None), (5, "committed", 2), (6, "lost", None))
    assert overlaps(former, log("b", (3, "assigned", None))) == (0, [3])


def test_a_member_that_could_not_know_only_believes():
    former = log("a", (1, "assigned", None), (3, "committed", 2), (8, "refused", None), (9, "lost", None))
    assert overlaps(former, log("b", (5, "assigned", None), (7, "committed", 6))) == (0, [4])
    assert former.refusals == ["FENCED"]


def test_a_member_that_wakes_up_as_an_owner_is_found():
    """Its commit is accepted although the partition is another's."""
    former = log("a", (1, "assigned", None), (9, "committed", 8))
    assert overlaps(former, log("b", (5, "assigned", None), (7, "revoked", None)))[0] == 1


def test_a_life_ends_with_its_process():
    former = log("a", (1, "assigned", None), (3, "committed", 2))
    former.end(4)
    assert overlaps(former, log("b", (5, "assigned", None))) == (0, [])


def test_the_highest_accepted_offset_counts():
    found = log("a", (1, "assigned", None), (7, "committed", 6), (5, "committed", 5.5), (9, "refused", None))
    assert (found.committed, found.committed_at) == ({"t-0": 7}, 5.5)


def test_reads_count_repeats():
    found = MemberLog("a")
    for _ in range(2):
        found.add({"at": 1, "event": "read", "partitions": [], "offsets": {"t-3": [7, 8]}})
    assert found.read == {("t-3", 7), ("t-3", 8)}
    assert found.read_count == 4
