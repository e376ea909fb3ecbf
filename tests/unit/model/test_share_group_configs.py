"""Configs of share groups: which values are accepted within a broker's bounds, and what they come to."""

import pytest
from tests.each import for_each

from millpond.model.errors import InvalidConfig
from millpond.model.group_configs import BROKER_NAMES, GroupConfigBounds, GroupConfigs
from millpond.model.share_group_configs import (
    AUTO_OFFSET_RESET,
    COPY_RECORD,
    DEAD_LETTER_TOPIC,
    DELIVERY_COUNT_LIMIT,
    ISOLATION_LEVEL,
    KEY_ORDER,
    NUMBERS,
    PARTITION_LOCKS_MAX,
    RECORD_LOCK_DURATION,
    RENEW_ENABLE,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    BoundedNumber,
    ShareGroupConfigBounds,
)
from millpond.model.share_groups import ShareGroupConfig, ShareIsolation, duration_of_start

EVERYTHING = {
    SHARE_SESSION_TIMEOUT: "50000",
    SHARE_HEARTBEAT_INTERVAL: "6000",
    RECORD_LOCK_DURATION: "15000",
    DELIVERY_COUNT_LIMIT: "2",
    PARTITION_LOCKS_MAX: "4000",
    RENEW_ENABLE: "false",
    AUTO_OFFSET_RESET: "by_duration:PT1H",
    ISOLATION_LEVEL: "read_committed",
    DEAD_LETTER_TOPIC: "failed",
    COPY_RECORD: "true",
    KEY_ORDER: "true",
}
SHORT = GroupConfigBounds(
    share=ShareGroupConfigBounds(BoundedNumber(2_000, 500, 3_000), BoundedNumber(100, 50, 2_500))
)


def test_without_configs_a_share_group_has_kafkas_defaults():
    assert GroupConfigs().default.share == ShareGroupConfig()


def test_every_config_of_a_share_group_has_an_effect():
    configs = GroupConfigs()
    configs.check(EVERYTHING)
    assert configs.effective(EVERYTHING).share == ShareGroupConfig(
        50_000,
        6_000,
        15_000,
        2,
        4_000,
        False,
        "by_duration:PT1H",
        ShareIsolation.READ_COMMITTED,
        "failed",
        True,
    )


REFUSED = {
    (SHARE_SESSION_TIMEOUT, "44999"): "between 45000 and 60000",
    (SHARE_HEARTBEAT_INTERVAL, "15001"): "between 5000 and 15000",
    (RECORD_LOCK_DURATION, "14999"): "between 15000 and 60000",
    (DELIVERY_COUNT_LIMIT, "1"): "between 2 and 10",
    (DELIVERY_COUNT_LIMIT, "11"): "between 2 and 10",
    (PARTITION_LOCKS_MAX, "99"): "between 100 and 4000",
    (PARTITION_LOCKS_MAX, "4001"): "between 100 and 4000",
    (RENEW_ENABLE, "yes"): "one of true, false",
    (AUTO_OFFSET_RESET, "none"): "latest, earliest, or by_duration:",
    (AUTO_OFFSET_RESET, "by_duration:1h"): "latest, earliest, or by_duration:",
    (AUTO_OFFSET_RESET, "by_duration:-PT1H"): "latest, earliest, or by_duration:",
    (ISOLATION_LEVEL, "serializable"): "one of read_uncommitted, read_committed",
    (DEAD_LETTER_TOPIC, "__failed"): "must not begin with '__'",
    (DEAD_LETTER_TOPIC, "a/b"): "a/b",
    (COPY_RECORD, "false"): "always have the whole message",
    (COPY_RECORD, "no"): "one of true, false",
    (KEY_ORDER, "1"): "one of true, false",
}


@for_each("refused", REFUSED.items())
def test_other_values_of_share_groups_are_refused(refused):
    (name, value), reason = refused
    with pytest.raises(InvalidConfig, match=reason):
        GroupConfigs().check({name: value})


def test_a_heartbeat_interval_of_a_share_group_is_shorter_than_its_session_timeout():
    configs = GroupConfigs(SHORT)
    configs.check({SHARE_SESSION_TIMEOUT: "2001", SHARE_HEARTBEAT_INTERVAL: "2000"})
    with pytest.raises(InvalidConfig, match=r"less than share\.session\.timeout\.ms, which is 2000"):
        configs.check({SHARE_HEARTBEAT_INTERVAL: "2000"})


def test_a_stored_number_outside_of_the_bounds_becomes_the_nearest_bound():
    stored = {SHARE_SESSION_TIMEOUT: "45000", SHARE_HEARTBEAT_INTERVAL: "1"}
    found = GroupConfigs(SHORT).effective(stored).share
    assert (found.session_timeout_ms, found.heartbeat_interval_ms) == (3_000, 50)


def test_numbers_have_the_names_of_kafkas_broker_configs():
    assert {BROKER_NAMES[name] for name in NUMBERS} == {
        "group.share.session.timeout.ms",
        "group.share.heartbeat.interval.ms",
        "group.share.record.lock.duration.ms",
        "group.share.delivery.count.limit",
        "group.share.partition.max.record.locks",
    }


DURATIONS = {
    "PT1S": 1_000,
    "P1D": 86_400_000,
    "p1dt2h3m4.5s": 93_784_500,
    "PT0.0019S": 1,
    "PT10M": 600_000,
    "PT0S": 0,
}
NO_DURATIONS = ("", "P", "PT", "1h", "PT-1S", "-PT1S", "P1Y", "PT1S ", "P1D1H", "PT٣S", "PT99999999999S")


def test_durations_are_read_as_java_reads_them():
    for text, milliseconds in DURATIONS.items():
        assert duration_of_start(f"by_duration:{text}") == milliseconds, text
    for text in NO_DURATIONS:
        with pytest.raises(ValueError, match="by_duration"):
            duration_of_start(f"by_duration:{text}")
    with pytest.raises(ValueError, match="latest"):
        duration_of_start("PT1S")
