"""How many connections an address may have, and how fast it may open them."""

import pytest
from prometheus_client import CollectorRegistry

from millpond.frontends.kafka.limits import KafkaLimits
from millpond.observability.line_limit import LINES_PER_WINDOW_MAX
from millpond.observability.metrics import QuotaMetrics
from millpond.security import addresses
from millpond.security.addresses import DELAY_MS_MAX, AddressLimits, ClientAddresses
from millpond.testing import SimulatedClock

ONE, OTHER, LOOPBACK = "192.0.2.1", "192.0.2.2", "127.0.0.1"


@pytest.fixture
def clock():
    return SimulatedClock(0)


def test_an_address_has_so_many_connections_and_no_more(clock):
    limited = ClientAddresses(AddressLimits(open_max=2, per_second=0), clock)
    assert [limited.admit(ONE) for _ in range(3)] == [0, 0, None]
    assert limited.admit(OTHER) == 0
    limited.forget(ONE)
    assert (limited.admit(ONE), limited.admit(ONE), limited.open_of(ONE)) == (0, None, 2)


def test_a_connection_that_was_admitted_is_counted_again_without_a_check(clock):
    """While its handshake ends, and its connection begins."""
    limited = ClientAddresses(AddressLimits(open_max=1, per_second=1), clock)
    assert limited.admit(ONE) == 0
    limited.count(ONE)
    limited.forget(ONE)
    assert (limited.open_of(ONE), limited.admit(ONE)) == (1, None)
    limited.forget(ONE)
    assert (limited.open_of(ONE), limited._open) == (0, {})


def test_a_network_of_ipv6_is_one_address(clock):
    limited = ClientAddresses(AddressLimits(open_max=2, per_second=0), clock)
    admitted = [limited.admit(f"2001:db8::{number}") for number in (1, 2, 3)]
    assert admitted == [0, 0, None]
    assert limited.admit("2001:db8:0:1::1") == 0


def test_connections_beyond_the_rate_wait(clock):
    limited = ClientAddresses(AddressLimits(open_max=0, per_second=2), clock)
    assert [limited.admit(ONE) for _ in range(4)] == [0, 0, 501, 1_001]
    assert limited.admit(OTHER) == 0
    clock.advance(1_001)
    assert limited.admit(ONE) == 500


def test_a_connection_that_would_wait_too_long_is_refused_and_does_not_count(clock):
    """Clients that are refused try again, so they must not lengthen the delay of each other."""
    limited = ClientAddresses(AddressLimits(open_max=0, per_second=10), clock)
    admitted = [limited.admit(ONE) for _ in range(1_000)]
    served = [each for each in admitted if each is not None]
    assert (len(served), max(served)) == (60, DELAY_MS_MAX + 1)
    assert set(admitted[60:]) == {None}
    assert limited.open_of(ONE) == 60
    clock.advance(1)
    assert (limited.admit(ONE), limited.admit(ONE)) == (DELAY_MS_MAX + 100, None)
    assert KafkaLimits().login_ms > max(served)


def test_refusals_do_not_fill_the_log(clock, caplog):
    caplog.set_level("INFO", logger="millpond.security.addresses")
    limited = ClientAddresses(AddressLimits(open_max=1, per_second=0), clock)
    for _ in range(2 * LINES_PER_WINDOW_MAX):
        limited.admit(ONE)
    assert len(caplog.records) == LINES_PER_WINDOW_MAX


def test_a_quota_replaces_the_setting(clock):
    limited = ClientAddresses(AddressLimits(open_max=0, per_second=2), clock)
    limited.quota_of = {ONE: 1.0, LOOPBACK: 1.0}.get
    assert [limited.admit(ONE) for _ in range(2)] == [0, 1_001]
    assert [limited.admit(LOOPBACK) for _ in range(2)] == [0, 1_001]
    limited.quota_of = {}.get
    assert [limited.admit(ONE) for _ in range(2)] == [0, 0]


def test_a_refused_connection_does_not_count_for_the_rate(clock):
    limited = ClientAddresses(AddressLimits(open_max=1, per_second=2), clock)
    assert [limited.admit(ONE) for _ in range(10)] == [0, *[None] * 9]
    limited.forget(ONE)
    assert limited.admit(ONE) == 0


def test_this_machine_may_do_more(clock):
    limited = ClientAddresses(AddressLimits(open_max=2, per_second=1), clock)
    assert [limited.admit(LOOPBACK) for _ in range(41)] == [
        *[0] * 20,
        *(1 + 50 * number for number in range(1, 21)),
        None,
    ]


def test_zero_is_unlimited(clock):
    limited = ClientAddresses(AddressLimits(open_max=0, per_second=0), clock)
    assert {limited.admit(ONE) for _ in range(1_000)} == {0}


def test_a_socket_without_an_address_is_counted_under_its_name(clock):
    limited = ClientAddresses(AddressLimits(open_max=1, per_second=1), clock)
    assert (limited.admit("unknown"), limited.admit("unknown")) == (0, None)


def test_addresses_do_not_take_unlimited_memory(clock, monkeypatch):
    monkeypatch.setattr(addresses, "ADDRESSES_MAX", 10)
    limited = ClientAddresses(AddressLimits(), clock)
    for number in range(100):
        limited.admit(f"192.0.2.{number}")
        limited.forget(f"192.0.2.{number}")
    assert (len(limited._buckets), limited._open) == (10, {})


def test_waits_and_refusals_are_counted(clock):
    registry = CollectorRegistry()
    limited = ClientAddresses(AddressLimits(open_max=2, per_second=1), clock, QuotaMetrics(registry))
    assert [limited.admit(ONE) for _ in range(3)] == [0, 1_001, None]
    assert registry.get_sample_value("millpond_connections_refused_total") == 1
    labels = {"quota": "connection_creation_rate"}
    assert registry.get_sample_value("millpond_quota_throttled_requests_total", labels) == 1
