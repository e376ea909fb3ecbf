"""Group configs: which values are accepted within a broker's bounds, and what they come to."""

import pytest
from tests.each import for_each

from millpond.model.errors import InvalidConfig
from millpond.model.group_configs import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    GroupConfig,
    GroupConfigBounds,
    GroupConfigs,
)
from millpond.model.share_group_configs import KAFKAS_SHARE_DEFAULTS

NARROW = GroupConfigBounds(1_000, 500, 2_000, 100, 50, 1_500)


def test_the_defaults_are_kafkas():
    configs = GroupConfigs()
    assert configs.default == GroupConfig() == GroupConfig(45_000, 5_000)
    of_consumers = {HEARTBEAT_INTERVAL: "5000", SESSION_TIMEOUT: "45000"}
    defaults = {name: each.default for name, each in configs.definitions.items()}
    assert defaults == of_consumers | KAFKAS_SHARE_DEFAULTS


def test_values_within_the_bounds_are_accepted():
    configs = GroupConfigs()
    for overrides in (
        {SESSION_TIMEOUT: "60000", HEARTBEAT_INTERVAL: "15000"},
        {SESSION_TIMEOUT: "45000"},
        {},
    ):
        configs.check(overrides)
    assert configs.effective({SESSION_TIMEOUT: "50000"}) == GroupConfig(50_000, 5_000)


REFUSED = {
    (SESSION_TIMEOUT, "44999"): "must lie between 45000 and 60000",
    (SESSION_TIMEOUT, "60001"): "must lie between 45000 and 60000",
    (HEARTBEAT_INTERVAL, "4999"): "must lie between 5000 and 15000",
    (HEARTBEAT_INTERVAL, "soon"): "must be a whole number",
    ("retention.ms", "1"): "there is no such group config",
}


@for_each("refused", REFUSED.items())
def test_other_values_are_refused(refused):
    (name, value), reason = refused
    with pytest.raises(InvalidConfig, match=reason):
        GroupConfigs().check({name: value})


def test_a_heartbeat_interval_is_shorter_than_the_session_timeout():
    configs = GroupConfigs(NARROW)
    configs.check({SESSION_TIMEOUT: "1001", HEARTBEAT_INTERVAL: "1000"})
    for overrides in ({SESSION_TIMEOUT: "1000", HEARTBEAT_INTERVAL: "1000"}, {HEARTBEAT_INTERVAL: "1400"}):
        with pytest.raises(InvalidConfig, match="must be less than"):
            configs.check(overrides)


def test_a_stored_value_outside_of_the_bounds_becomes_the_nearest_bound():
    stored = {SESSION_TIMEOUT: "45000", HEARTBEAT_INTERVAL: "5000"}
    assert GroupConfigs(NARROW).effective(stored) == GroupConfig(2_000, 1_500)
    assert GroupConfigs().effective({SESSION_TIMEOUT: "1"}) == GroupConfig(45_000, 5_000)
