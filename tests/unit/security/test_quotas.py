"""Which quota limits a client, and how long it waits."""

import sys
from itertools import permutations

import pytest
from prometheus_client import CollectorRegistry
from tests.each import for_each

from millpond.model.principals import BROKER, USER, Principal
from millpond.model.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    EVERY_NAME,
    NAME_CHARACTERS_MAX,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    VALUE_MAX,
    ClientQuota,
    QuotaEntity,
)
from millpond.observability.metrics import QuotaMetrics
from millpond.security import quotas
from millpond.security.quotas import BucketLimits, QuotaLimiter, TokenBucket
from millpond.testing import SimulatedClock

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
EVERY, RATE_OF_IP = EVERY_NAME, CONNECTION_CREATION_RATE


class Limited:
    """A limiter, with the clock that it reads."""

    def __init__(self, *stored, metrics=None):
        self.clock = SimulatedClock(0)
        self.limiter = QuotaLimiter(self.clock, metrics)
        self.set(*stored)

    def set(self, *stored):
        self.limiter.apply(
            [ClientQuota(QuotaEntity(*names), key, float(value)) for names, key, value in stored]
        )

    def charge(self, amount, principal=ALICE, client_id="app", key=PRODUCER_BYTE_RATE):
        return self.limiter.charge(key, principal, client_id, amount)

    def rate(self, principal, client_id, key=PRODUCER_BYTE_RATE):
        bucket = self.limiter.bucket(key, principal, client_id)
        return None if bucket is None else bucket.rate


# -- buckets --------------------------------------------------------------------------------------------------


def test_a_new_bucket_allows_what_its_rate_allows_in_the_burst_time():
    bucket = TokenBucket(100, 0, BucketLimits(burst_s=2))
    assert bucket.charge(200, 0) == 0
    assert bucket.charge(1, 0) == 11  # one unit is 10 ms, rounded up


def test_at_the_end_of_the_delay_the_level_is_not_negative():
    for rate in (1, 3, 7, 1_000, 12_345):
        bucket = TokenBucket(rate, 0)
        delay = bucket.charge(rate * 5 + 1, 0)
        assert bucket.delay_ms(delay - 2) > 0
        assert bucket.delay_ms(delay) == 0


def test_an_idle_bucket_does_not_gather_more_than_the_burst():
    bucket = TokenBucket(100, 0)
    assert bucket.charge(100, 1_000_000) == 0
    assert bucket.charge(100, 1_000_000) == 1_001


def test_no_delay_is_longer_than_the_maximum():
    bucket = TokenBucket(10, 0, BucketLimits(delay_s_max=5))
    assert bucket.charge(1e12, 0) == 5_001
    assert bucket.delay_ms(5_001) == 0


def test_a_clock_that_stands_still_adds_nothing():
    bucket = TokenBucket(1_000, 5_000)
    delays = [bucket.charge(1_000, now) for now in (5_000, 5_000, 4_000)]
    assert delays == [0, 1_001, 2_001]


def test_a_client_that_keeps_its_delays_gets_its_rate():
    """Whatever the sizes: over a long time the average is the rate, apart from the first burst."""
    bucket, now, sent = TokenBucket(1_000, 0), 0, 0
    while now < 600_000:
        size = 1 + (now * 7_919 + sent) % 5_000
        sent += size
        now += bucket.charge(size, now) or 1
    assert sent == pytest.approx(601_000, rel=0.01)


# -- which quota ----------------------------------------------------------------------------------------------

BY_PRECEDENCE = (
    (("alice", "app"), 1),
    (("alice", EVERY), 2),
    (("alice", None), 3),
    ((EVERY, "app"), 4),
    ((EVERY, EVERY), 5),
    ((EVERY, None), 6),
    ((None, "app"), 7),
    ((None, EVERY), 8),
)


@for_each("left", range(len(BY_PRECEDENCE), 0, -1))
def test_the_most_specific_quota_decides(left):
    stored = [(names, PRODUCER_BYTE_RATE, value) for names, value in BY_PRECEDENCE[-left:]]
    assert Limited(*stored).rate(ALICE, "app") == stored[0][2]


def test_a_client_that_no_quota_names_is_not_limited():
    limited = Limited((("alice", "app"), PRODUCER_BYTE_RATE, 1), ((None, "job"), CONSUMER_BYTE_RATE, 1))
    assert limited.charge(1e9, BOB) == limited.charge(1e9, ALICE, "other") == 0
    assert limited.charge(1e9, ALICE, "job") == 0  # the quota of this client id is for reading
    assert limited.charge(1e9, Principal(BROKER, "1"), "app") == 0


def test_clients_share_a_bucket_if_the_quota_is_of_what_they_have_in_common():
    limited = Limited((("alice", None), PRODUCER_BYTE_RATE, 100))
    assert limited.charge(100, ALICE, "one") == 0
    assert limited.charge(100, ALICE, "two") == 1_001


def test_a_default_limits_each_name_by_itself():
    for names in ((EVERY, None), (None, EVERY), (EVERY, EVERY)):
        limited = Limited((names, PRODUCER_BYTE_RATE, 100))
        assert limited.charge(100, ALICE, "one") == 0
        assert limited.charge(100, BOB, "two") == 0
        assert limited.charge(100, ALICE, "one") == 1_001


def test_each_quota_has_its_own_bucket():
    limited = Limited((("alice", None), PRODUCER_BYTE_RATE, 100), (("alice", None), CONSUMER_BYTE_RATE, 100))
    assert limited.charge(200) == 1_001
    assert limited.charge(100, key=CONSUMER_BYTE_RATE) == 0


# -- changes --------------------------------------------------------------------------------------------------


def test_a_changed_rate_applies_at_once_and_an_unchanged_one_keeps_its_bucket():
    quota = (("alice", None), PRODUCER_BYTE_RATE, 100)
    limited = Limited(quota)
    limited.charge(1_100)
    limited.set(quota, (("bob", None), PRODUCER_BYTE_RATE, 5))
    assert limited.charge(0) == 10_001
    limited.set((("alice", None), PRODUCER_BYTE_RATE, 200))
    assert limited.charge(0) == 0


def test_without_quotas_nothing_is_looked_up():
    limited = Limited()
    assert not limited.limiter.is_active
    limited.set((("alice", None), PRODUCER_BYTE_RATE, 100))
    assert (limited.limiter.is_active, limited.limiter.measures_requests) == (True, False)
    limited.set((("alice", None), REQUEST_PERCENTAGE, 100))
    assert limited.limiter.measures_requests
    limited.set(((None, None, EVERY), CONNECTION_CREATION_RATE, 5))
    assert not limited.limiter.is_active
    assert len(limited.limiter.stored) == 1


def test_what_clients_name_does_not_take_unlimited_memory(monkeypatch):
    monkeypatch.setattr(quotas, "BUCKETS_MAX", 10)
    monkeypatch.setattr(quotas, "CLIENTS_MAX", 20)
    limited = Limited(((None, EVERY), PRODUCER_BYTE_RATE, 100))
    for number in range(100):
        limited.charge(1, client_id=str(number))
    assert len(limited.limiter._buckets) == 11, "one of them is shared by all that came late"
    assert len(limited.limiter._found) <= 20


def test_a_client_id_that_no_quota_can_name_counts_as_none():
    limited = Limited(((None, EVERY), PRODUCER_BYTE_RATE, 100))
    longest = "x" * NAME_CHARACTERS_MAX
    assert limited.charge(200, client_id=longest) == 1_001
    assert limited.charge(200, client_id=longest + "y") == 1_001
    assert limited.charge(0, client_id=longest + "z") == limited.charge(0, client_id="") == 1_001
    assert {len(client_id) for _, _, client_id in limited.limiter._found} == {0, NAME_CHARACTERS_MAX}


def test_new_names_do_not_end_the_delay_of_another_client(monkeypatch):
    monkeypatch.setattr(quotas, "BUCKETS_MAX", 10)
    monkeypatch.setattr(quotas, "CLIENTS_MAX", 20)
    limited = Limited(((None, EVERY), PRODUCER_BYTE_RATE, 100))
    limited.charge(3_100, client_id="debtor")
    for number in range(100):
        limited.clock.advance(100)
        limited.charge(1, client_id=str(number))
    assert limited.charge(0, client_id="debtor") == 20_001
    assert limited.charge(0, client_id="new") == 0, "full buckets have made room"


def test_clients_without_room_share_a_bucket_by_user(monkeypatch):
    monkeypatch.setattr(quotas, "BUCKETS_MAX", 10)
    limited = Limited(((EVERY, EVERY), PRODUCER_BYTE_RATE, 100))
    for number in range(10):
        assert limited.charge(200, client_id=str(number)) == 1_001
    assert [limited.charge(200, client_id=each) for each in ("late", "later")] == [1_001, 3_001]
    assert limited.charge(100, BOB) == 0


def test_a_bucket_that_was_forgotten_is_used_by_no_client(monkeypatch):
    """It would gather a debt that the next look-up does not know."""
    monkeypatch.setattr(quotas, "BUCKETS_MAX", 1)
    limited = Limited(((None, EVERY), PRODUCER_BYTE_RATE, 100))
    limited.charge(1, client_id="one")
    limited.clock.advance(5_000)
    limited.charge(1, client_id="two")
    assert limited.charge(200, client_id="one") == 1_001
    limited.limiter._found.clear()
    assert limited.charge(0, client_id="one") == 1_001


# -- other units ----------------------------------------------------------------------------------------------


def test_time_of_requests_is_counted_in_percent_and_delays_at_most_a_second():
    limited = Limited((("alice", None), REQUEST_PERCENTAGE, 50))
    assert limited.charge(100 * 0.5, key=REQUEST_PERCENTAGE) == 0  # half a second of the loop's time
    assert limited.charge(100 * 0.1, key=REQUEST_PERCENTAGE) == 201
    assert limited.charge(100 * 60, key=REQUEST_PERCENTAGE) == 1_001


def test_changes_of_topics_may_come_in_bursts_of_ten_seconds():
    limited = Limited((("alice", None), CONTROLLER_MUTATION_RATE, 0.5))
    assert limited.charge(5, key=CONTROLLER_MUTATION_RATE) == 0
    assert limited.charge(1, key=CONTROLLER_MUTATION_RATE) == 2_001


def test_a_response_is_bounded_by_the_rate():
    limited = Limited((("alice", None), CONSUMER_BYTE_RATE, 100))
    assert limited.limiter.response_bytes_max(ALICE, "app") == 1_000
    assert limited.limiter.response_bytes_max(BOB, "app") is None


def test_the_highest_number_there_is_means_no_limit():
    """Kafka's tools set it. Earlier versions have stored it, too."""
    for value in (VALUE_MAX, sys.float_info.max):
        limited = Limited(
            (("alice", None), CONSUMER_BYTE_RATE, value), ((None, None, EVERY), RATE_OF_IP, value)
        )
        assert limited.limiter.response_bytes_max(ALICE, "app") == VALUE_MAX * 10
        assert limited.charge(10**12, key=CONSUMER_BYTE_RATE) == 0
        assert limited.limiter.connection_rate("192.0.2.1") == VALUE_MAX


def test_the_lowest_rate_of_addresses_of_one_network_applies():
    rates = [((None, None, f"2001:db8::{rate}"), RATE_OF_IP, rate) for rate in (3, 2, 5)]
    for stored in permutations(rates):
        assert Limited(*stored).limiter.connection_rate("2001:db8::/64") == 2


def test_the_rate_of_an_address_is_its_own_or_the_default():
    limited = Limited(
        ((None, None, "192.0.2.1"), CONNECTION_CREATION_RATE, 1),
        ((None, None, "2001:db8::1"), CONNECTION_CREATION_RATE, 2),
    )
    assert limited.limiter.connection_rate("192.0.2.1") == 1
    assert limited.limiter.connection_rate("2001:db8::/64") == 2
    assert limited.limiter.connection_rate("192.0.2.2") is None
    limited.set(((None, None, EVERY), CONNECTION_CREATION_RATE, 3))
    assert limited.limiter.connection_rate("192.0.2.2") == 3


def test_waits_are_counted_by_quota():
    registry = CollectorRegistry()
    limited = Limited((("alice", None), PRODUCER_BYTE_RATE, 100), metrics=QuotaMetrics(registry))
    limited.charge(100)
    assert registry.get_sample_value("millpond_quota_throttled_requests_total") is None
    limited.charge(100)
    limited.limiter.delay_ms(PRODUCER_BYTE_RATE, ALICE, "app")
    labels = {"quota": PRODUCER_BYTE_RATE}
    assert registry.get_sample_value("millpond_quota_throttled_requests_total", labels) == 2
    assert registry.get_sample_value("millpond_quota_throttled_seconds_total", labels) == pytest.approx(2.002)
