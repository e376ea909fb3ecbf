"""The judge of `test_share_chaos.py`: what it must find, and what it must not take for a fault."""

from tests.faults.processes.share_judge import history
from tests.faults.processes.share_member import ACCEPT, RELEASE


def got(at, offset, count=1, since=None, key="k"):
    return {
        "at": at,
        "event": "got",
        "since": at - 1 if since is None else since,
        "messages": [[0, offset, key, count]],
    }


def settled(at, offset, count=1, fate=ACCEPT):
    lines = [{"at": at - 0.5, "event": "settling"}, {"at": at, "event": "settled"}]
    return [line | {"messages": [[0, offset, count, fate]]} for line in lines]


def judged(*lines):
    return history([("m", lines)])


def test_a_message_that_is_accepted_once_is_fine():
    found = judged(got(1, 0), *settled(2, 0))
    assert (found.delivered_again(), found.counted_too_low(), found.out_of_order(), found.lost({0: 1})) == (
        [],
    ) * 4


def test_a_delivery_after_the_acknowledgement_is_found():
    assert judged(got(1, 0), *settled(2, 0), got(5, 0, count=1, since=3)).delivered_again()
    assert judged(got(1, 0), *settled(2, 0), got(3, 0, count=2, since=1)).delivered_again()


def test_an_older_delivery_that_is_read_late_is_none():
    assert not judged(
        got(1, 0, count=2), *settled(2, 0, count=2), got(5, 0, count=1, since=0)
    ).delivered_again()


def test_a_confirmed_release_that_is_not_counted_is_found():
    released = [got(1, 0), *settled(2, 0, fate=RELEASE)]
    assert judged(*released, got(5, 0, count=1, since=3)).counted_too_low()
    assert not judged(*released, got(5, 0, count=2, since=3)).counted_too_low()


def test_a_message_before_its_predecessor_is_found():
    both = [got(1, 0), got(2, 1), *settled(4, 0), *settled(5, 1)]
    assert judged(*both).out_of_order() == [(0, 1)]
    assert not judged(got(1, 0), *settled(2, 0), got(3, 1)).out_of_order()
    assert not judged(got(1, 0, key="a"), got(2, 1, key="b")).out_of_order()


def test_a_message_that_was_never_accepted_is_lost():
    assert judged(got(1, 0), *settled(2, 0, fate=RELEASE)).lost({0: 1}) == [(0, 0)]
    assert judged(got(1, 0), *settled(2, 0)).lost({0: 2}) == [(0, 1)]


def test_a_message_that_two_accept_is_found():
    assert judged(got(1, 0), *settled(2, 0), *settled(3, 0)).accepted_twice == [(0, 0)]


def test_a_paused_member_may_accept_what_another_one_has_accepted_after_its_lock_had_ended():
    """The message is below the start then, where acknowledgements are ignored, as in Kafka."""
    found = judged(got(1, 0), got(3, 0, count=2), *settled(4, 0, count=2), *settled(9, 0))
    assert not found.accepted_twice
    assert not found.delivered_again()
