"""The alerts and the dashboard use metrics that brokers expose. tests/peers runs them in a real Prometheus."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.deploy.alert_cases import CASES, HEALTHY
from tests.deploy.monitoring import alerts, dashboard, generator, metrics_in, queries

from millpond.observability.metrics import Metrics


@pytest.fixture(scope="module")
def exposed() -> set[str]:
    """All names of samples, also of metrics without samples yet."""
    metrics = Metrics()
    names = set()
    for family in text_string_to_metric_families(metrics.expose().decode()):
        names |= {sample.name for sample in family.samples}
    for collector in metrics.registry._collector_to_names:
        for family in getattr(collector, "describe", list)():
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(
                family.type, ("",)
            )
            names |= {family.name + suffix for suffix in suffixes}
    return names


@pytest.mark.parametrize("name", sorted(alerts()))
def test_an_alert_uses_metrics_that_exist_and_says_what_to_do(name, exposed):
    rule = alerts()[name]
    assert metrics_in(rule["expr"]) <= exposed
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")


def test_every_alert_has_a_case_that_provokes_it_and_a_broker_in_order():
    assert set(CASES) == set(alerts())
    used = {name for rule in alerts().values() for name in metrics_in(rule["expr"])}
    assert used <= {name.partition("{")[0] for name in HEALTHY}


def test_every_panel_uses_metrics_that_exist(exposed):
    found = queries()
    assert len(found) >= 20
    for query in found.values():
        assert metrics_in(query)
        assert metrics_in(query) <= exposed, query


def test_the_dashboard_is_what_its_generator_makes():
    assert dashboard() == generator().dashboard(), "run python deploy/grafana/generate.py"


def test_panels_do_not_overlap():
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = [
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
