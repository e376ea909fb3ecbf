"""Histograms of latency, as Prometheus reads them."""

from prometheus_client import CollectorRegistry, generate_latest

from millpond.observability.latency import SECONDS, LatencyHistogram


def exposed(*observations):
    registry = CollectorRegistry()
    histogram = LatencyHistogram(registry, "request_seconds", "Time.", "api")
    for api, seconds in observations:
        histogram.of(api).observe(seconds)
    lines = generate_latest(registry).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_a_bucket_counts_what_took_at_most_its_bound():
    found = exposed(("Fetch", 0.0005), ("Fetch", 0.0006), ("Fetch", 31.0))
    counts = [float(found[f'request_seconds_bucket{{api="Fetch",le="{bound}"}}']) for bound in SECONDS]
    assert counts == [1.0] + [2.0] * (len(SECONDS) - 1)
    assert found['request_seconds_bucket{api="Fetch",le="+Inf"}'] == "3.0"
    assert found['request_seconds_count{api="Fetch"}'] == "3.0"
    assert float(found['request_seconds_sum{api="Fetch"}']) == 0.0005 + 0.0006 + 31.0


def test_labels_are_apart():
    found = exposed(("Fetch", 0.1), ("Produce", 0.1), ("Produce", 0.1))
    assert found['request_seconds_count{api="Produce"}'] == "2.0"
    assert found['request_seconds_count{api="Fetch"}'] == "1.0"


def test_what_was_never_observed_is_not_exposed():
    registry = CollectorRegistry()
    LatencyHistogram(registry, "request_seconds", "Time.", "api").of("Fetch")
    assert b"Fetch" not in generate_latest(registry)
