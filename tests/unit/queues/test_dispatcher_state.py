from hypothesis import given
from hypothesis import strategies as st

from millpond.queues.dispatcher_state import BYTES_CREDIT_MAX, CREDIT_MAX, ConsumerCredit, LeaseDeadlines

TIME = st.integers(0, 2_000)
BUCKET_MS = 1 << LeaseDeadlines.BUCKET_BITS


@given(
    leases=st.dictionaries(st.integers(0, 50), TIME),
    ended=st.sets(st.integers(0, 50)),
    moments=st.lists(TIME, max_size=5).map(sorted),
)
def test_whatever_has_run_out_is_found_once(leases, ended, moments):
    deadlines = LeaseDeadlines()
    for offset, deadline in leases.items():
        deadlines.add(deadline, offset)
    for offset in ended & set(leases):
        deadlines.discard(leases.pop(offset), offset)
    for now in moments:
        candidates = deadlines.candidates(now)
        assert candidates == sorted(candidates)
        due = [offset for offset, deadline in sorted(leases.items()) if deadline <= now]
        assert [offset for offset in candidates if leases[offset] <= now] == due
        for offset in due:
            deadlines.discard(leases.pop(offset), offset)
    assert deadlines.next() is None or leases


@given(leases=st.dictionaries(st.integers(0, 50), TIME, min_size=1))
def test_at_the_next_moment_at_least_one_has_run_out_and_not_long_ago(leases):
    deadlines = LeaseDeadlines()
    for offset, deadline in leases.items():
        deadlines.add(deadline, offset)
    first = min(leases.values())
    assert first < deadlines.next() <= first + BUCKET_MS


def test_leases_that_end_in_time_leave_nothing_behind():
    """While one delivery takes half a day, millions of others come and go."""
    deadlines = LeaseDeadlines()
    deadlines.add(0, 0)
    for offset in range(1, 5_000):
        deadlines.add(offset * BUCKET_MS, offset)
        deadlines.discard(offset * BUCKET_MS, offset)
    assert len(deadlines) <= 2 * LeaseDeadlines.EMPTY_MAX
    assert deadlines.candidates(BUCKET_MS) == [0]


def test_many_that_do_not_end_are_all_kept():
    deadlines = LeaseDeadlines()
    for offset in range(1_000):
        deadlines.add(offset * BUCKET_MS, offset)
    assert len(deadlines) == 1_000
    assert deadlines.candidates(1_000 * BUCKET_MS) == list(range(1_000))


def test_a_purse_counts_bytes_only_once_it_was_given_some():
    consumer_credit = ConsumerCredit()
    consumer_credit.add(2)
    consumer_credit.take(10**15)
    assert consumer_credit.messages == 1
    assert consumer_credit.bytes > BYTES_CREDIT_MAX
    consumer_credit.add(0, 100)
    consumer_credit.take(130)
    assert (consumer_credit.messages, consumer_credit.bytes) == (0, -30)
    consumer_credit.add(0, 50)
    assert consumer_credit.bytes == 20


def test_what_is_given_back_is_as_if_it_had_not_been_taken():
    for size in (None, 50):
        consumer_credit = ConsumerCredit()
        consumer_credit.add(3, size)
        before = consumer_credit.messages, consumer_credit.bytes
        consumer_credit.take(20)
        consumer_credit.restore(20)
        assert (consumer_credit.messages, consumer_credit.bytes) == before


def test_a_purse_has_a_bottom():
    consumer_credit = ConsumerCredit()
    consumer_credit.add(CREDIT_MAX * 2, BYTES_CREDIT_MAX * 2)
    assert (consumer_credit.messages, consumer_credit.bytes) == (CREDIT_MAX, BYTES_CREDIT_MAX - 1)
