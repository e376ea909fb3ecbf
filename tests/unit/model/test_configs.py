"""Topic configs: which values are taken, and what they come to."""

import pytest

from millpond.model.configs import DEFINITIONS, check_config, check_configs
from millpond.model.errors import InvalidConfig, InvalidPartitionCount
from millpond.model.topics import PARTITIONS_MAX, ConfigOrigin, Topic, check_partition_count


def topic(overrides=None, broker_defaults=None):
    return Topic(b"\0" * 16, "orders", 1, 0, overrides or {}, broker_defaults or {})


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_every_default_is_a_legal_value(name):
    check_config(name, DEFINITIONS[name].default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", str(2**63 - 1)),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", "compact, delete"),
        ("compression.type", "zstd"),
        ("min.cleanable.dirty.ratio", "0.25"),
        ("preallocate", "true"),
        ("leader.replication.throttled.replicas", "0:1,1:2"),
    ],
)
def test_legal_values_are_taken(name, value):
    check_configs({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", str(2**63)),
        ("retention.ms", ""),
        ("retention.ms", "7d"),
        ("retention.ms", "1_000"),
        ("retention.ms", " 5"),
        ("retention.ms", "\uff15"),
        ("retention.ms", "9" * 5000),
        ("cleanup.policy", ""),
        ("cleanup.policy", "delete,shred"),
        ("compression.type", "brotli"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "half"),
        ("preallocate", "yes"),
        ("Retention.ms", "5"),
    ],
)
def test_impossible_values_are_refused_by_name(name, value):
    with pytest.raises(InvalidConfig, match=f"Config '{name}'"):
        check_configs({"retention.bytes": "5", name: value})


def test_the_nearest_source_counts():
    described = topic({"retention.ms": "1"}, {"retention.ms": "2", "retention.bytes": "3"}).describe_config()
    assert set(described) == set(DEFINITIONS)
    assert (described["retention.ms"].value, described["retention.ms"].source) == ("1", ConfigOrigin.TOPIC)
    assert (described["retention.bytes"].value, described["retention.bytes"].source) == (
        "3",
        ConfigOrigin.BROKER,
    )
    assert described["segment.ms"].source == ConfigOrigin.DEFAULT


def test_a_topic_without_overrides_keeps_seven_days_and_deletes():
    config = topic().config()
    assert (config.retention_ms, config.retention_bytes) == (7 * 86_400_000, -1)
    assert (config.deleted_by_age, config.compacted, config.append_time) == (True, False, False)
    assert (config.max_message_bytes, config.compression) == (1_048_588, "producer")


@pytest.mark.parametrize(
    ("policy", "compacted", "deleted"),
    [("compact", True, False), ("compact, delete", True, True), ("delete", False, True)],
)
def test_cleanup_policies_can_be_combined(policy, compacted, deleted):
    config = topic({"cleanup.policy": policy, "message.timestamp.type": "LogAppendTime"}).config()
    assert (config.compacted, config.deleted_by_age, config.append_time) == (compacted, deleted, True)


@pytest.mark.parametrize("count", [1, PARTITIONS_MAX])
def test_partition_counts_within_the_bounds_are_taken(count):
    assert check_partition_count(count) == count


@pytest.mark.parametrize("count", [0, -1, PARTITIONS_MAX + 1])
def test_partition_counts_outside_the_bounds_are_refused(count):
    with pytest.raises(InvalidPartitionCount, match=f"cannot have {count} partitions"):
        check_partition_count(count)
