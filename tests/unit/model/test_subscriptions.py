import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.errors import InvalidSubscription
from millpond.model.subscriptions import (
    BOUNDS,
    NAME_LENGTH_MAX,
    ExhaustedAction,
    SubscriptionConfig,
    SubscriptionMode,
    check_name,
    config_from,
    differences,
)

HOUR_MS = 3_600_000


@given(failed=st.integers(1, 2_000), offset=st.integers(0, 1 << 62))
def test_a_backoff_doubles_up_to_its_limit_and_spreads_by_a_fifth(failed, offset):
    config = SubscriptionConfig(backoff_ms=1_000, backoff_max_ms=300_000)
    plain = min(300_000, 1_000 * 2 ** min(failed - 1, 30))
    assert plain * 0.8 - 1 <= config.backoff(failed, offset) <= plain * 1.2


def test_a_backoff_is_the_same_each_time_and_neighbours_differ():
    config = SubscriptionConfig(backoff_ms=60_000)
    rests = [config.backoff(1, offset) for offset in range(200)]
    assert rests == [config.backoff(1, offset) for offset in range(200)]
    assert len(set(rests)) > 30
    assert min(rests) < 50_000
    assert max(rests) > 70_000


def test_no_backoff_is_none():
    assert SubscriptionConfig(backoff_ms=0).backoff(7, 123) == 0


@pytest.mark.parametrize(("name", "bounds"), BOUNDS.items())
def test_numbers_have_bounds(name, bounds):
    least, most = bounds
    assert getattr(config_from({name: least}), name) == least
    assert getattr(config_from({name: str(most)}), name) == most
    for value in (least - 1, most + 1):
        with pytest.raises(InvalidSubscription, match=name):
            config_from({name: value})


def test_every_number_of_a_config_has_bounds():
    numbers = {name for name, value in SubscriptionConfig().to_json().items() if isinstance(value, int)}
    assert numbers == set(BOUNDS)


def test_values_may_be_written_as_people_write_them():
    config = config_from(
        {"mode": "key_shared", "ack_timeout_ms": "1h", "on_exhausted": "block", "attempts_max": "7"}
    )
    assert config == SubscriptionConfig(SubscriptionMode.KEY_SHARED, HOUR_MS, 7, ExhaustedAction.BLOCK)


def test_what_is_not_named_stays():
    base = SubscriptionConfig(mode=SubscriptionMode.FAILOVER, attempts_max=9, dead_letter_topic="graves")
    changed = config_from({"attempts_max": 2}, base)
    assert changed == SubscriptionConfig(
        mode=SubscriptionMode.FAILOVER, attempts_max=2, dead_letter_topic="graves"
    )


def test_a_config_survives_being_stored():
    config = SubscriptionConfig(
        mode=SubscriptionMode.MULTICAST, on_exhausted=ExhaustedAction.DROP, key_window=5
    )
    assert config_from(config.to_json()) == config


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"colour": "red"}, "there is no colour"),
        ({"mode": "loud"}, "mode cannot be 'loud'"),
        ({"attempts_max": "many"}, "attempts_max cannot be 'many'"),
        ({"attempts_max": None}, "attempts_max cannot be None"),
        ({"ack_timeout_ms": "soon"}, "ack_timeout_ms cannot be 'soon'"),
        ({"on_exhausted": ""}, "on_exhausted cannot be ''"),
        ({"attempts_max": 2.5}, "attempts_max cannot be 2.5"),
        ({"attempts_max": True}, "attempts_max cannot be True"),
        ({"leases_max": float("inf")}, "leases_max cannot be inf"),
        ({"dead_letter_topic": None}, "dead_letter_topic cannot be None"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(values, said):
    with pytest.raises(InvalidSubscription) as caught:
        config_from(values)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("config", "strict", "by_partition"),
    [
        (SubscriptionConfig(SubscriptionMode.SHARED), False, False),
        (SubscriptionConfig(SubscriptionMode.KEY_SHARED), True, False),
        (SubscriptionConfig(SubscriptionMode.KEY_SHARED, key_window=2), False, False),
        (SubscriptionConfig(SubscriptionMode.EXCLUSIVE), False, True),
        (SubscriptionConfig(SubscriptionMode.FAILOVER), False, True),
        (SubscriptionConfig(SubscriptionMode.MULTICAST), False, True),
    ],
)
def test_a_mode_says_what_is_in_order(config, strict, by_partition):
    assert (config.strict, config.ordered_by_partition) == (strict, by_partition)


@pytest.mark.parametrize("name", ["a", "Orders.v2_x-1", "x" * NAME_LENGTH_MAX])
def test_names_of_topics_are_names_of_subscriptions(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * (NAME_LENGTH_MAX + 1), "a\n"])
def test_other_names_are_refused(name):
    with pytest.raises(InvalidSubscription):
        check_name(name)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, {}),
        ({"mode": "key_shared"}, {}),
        ({"mode": "shared"}, {"mode": (SubscriptionMode.SHARED, SubscriptionMode.KEY_SHARED)}),
        ({"ack_timeout_ms": "30s", "attempts_max": "5", "backoff_ms": 1_000}, {}),
        ({"ack_timeout_ms": "31s"}, {"ack_timeout_ms": (31_000, 30_000)}),
        ({"dead_letter_topic": "dead"}, {"dead_letter_topic": ("dead", "")}),
    ],
)
def test_only_settings_that_are_named_and_differ_are_differences(wanted, found):
    existing = {
        name: str(value)
        for name, value in SubscriptionConfig(mode=SubscriptionMode.KEY_SHARED).to_json().items()
    }
    assert differences(wanted, existing) == found
