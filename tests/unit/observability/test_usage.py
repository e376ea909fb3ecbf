"""Metrics of topics and their readers, and the limit of their labels."""

from prometheus_client import CollectorRegistry, generate_latest

from millpond.model.usage import ReaderLag, TopicUsage, Usage
from millpond.observability.usage import LABELS_MAX, UsageCollector


def exposed(usage):
    registry, collector = CollectorRegistry(), UsageCollector()
    registry.register(collector)
    collector.usage = usage
    lines = generate_latest(registry).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_every_value_has_its_metric():
    found = exposed(Usage([TopicUsage("orders", 2, 30, 40, 5_000)], [ReaderLag("readers", "orders", 7)], []))
    assert found == {
        'millpond_topic_partitions{topic="orders"}': "2.0",
        'millpond_topic_offsets{topic="orders"}': "30.0",
        'millpond_topic_end_offset{topic="orders"}': "40.0",
        'millpond_topic_bytes{topic="orders"}': "5000.0",
        'millpond_group_lag{group="readers",topic="orders"}': "7.0",
    }


def test_the_largest_are_named_and_the_rest_is_one_sum():
    lags = [ReaderLag(f"g{number:04}", "t", number) for number in range(LABELS_MAX + 3)]
    found = exposed(Usage([], [], lags))
    assert len(found) == LABELS_MAX + 1
    assert found['millpond_subscription_lag{subscription="(other)",topic="(other)"}'] == "3.0"  # 0 + 1 + 2
    assert 'millpond_subscription_lag{subscription="g0002",topic="t"}' not in found
    assert found['millpond_subscription_lag{subscription="g0003",topic="t"}'] == "3.0"


def test_names_cannot_break_the_page():
    found = exposed(Usage([], [ReaderLag('a"} 1\nmillpond_fake 2', "t", 1)], []))
    assert list(found) == ['millpond_group_lag{group="a\\"} 1\\nmillpond_fake 2",topic="t"}']
