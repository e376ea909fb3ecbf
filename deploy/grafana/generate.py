"""`python deploy/grafana/generate.py` writes `millpond.json`, a dashboard for Grafana, from the panels below.

Grafana's own format is long and mostly about appearance; here a panel is a title, a unit, and queries with legends.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

DASHBOARD: Final = Path(__file__).parent / "millpond.json"
COLUMNS, WIDTH, HEIGHT = 3, 8, 8
SELECTED: Final = '{job="$job",instance=~"$instance"}'
OPERATION: Final = "{{operation}} {{status}}"
RATE: Final = "[$__rate_interval]"


class Panel(NamedTuple):
    """`queries` are PromQL with legends. `unit` is one of Grafana's."""

    title: str
    unit: str
    queries: dict[str, str]
    description: str = ""


def p99(metric: str, by: str) -> str:
    return f"histogram_quantile(0.99, sum by ({by}, le) (rate({metric}_bucket{SELECTED}{RATE})))"


def rate(metric: str, by: str, more: str = "") -> str:
    selected = SELECTED if not more else f"{SELECTED[:-1]},{more}}}"
    return f"sum by ({by}) (rate({metric}_total{selected}{RATE}))"


def total(metric: str, by: str) -> str:
    return f"sum by ({by}) ({metric}{SELECTED})"


ROWS: Final[dict[str, list[Panel]]] = {
    "Traffic": [
        Panel(
            "Messages per second",
            "cps",
            {f"sum by (topic) (deriv(millpond_topic_end_offset{SELECTED}[2m])) > 0": "{{topic}}"},
            "By topic, from the end offsets.",
        ),
        Panel("Bytes appended", "Bps", {rate("millpond_log_append_bytes", "instance"): "{{instance}}"}),
        Panel(
            "Bytes read, by source",
            "Bps",
            {rate("millpond_log_fetch_bytes", "source"): "{{source}}"},
            "Readers at the end are served from the tail cache; store means that they lag.",
        ),
        Panel("Kafka requests", "reqps", {rate("millpond_kafka_requests", "api"): "{{api}}"}),
        Panel(
            "HTTP requests",
            "reqps",
            {rate("millpond_http_requests", "operation, status"): "{{operation}} {{status}}"},
        ),
        Panel(
            "gRPC requests",
            "reqps",
            {rate("millpond_grpc_requests", "operation, status"): "{{operation}} {{status}}"},
        ),
    ],
    "Latency (p99)": [
        Panel(
            "Kafka requests",
            "s",
            {p99("millpond_kafka_request_seconds", "api"): "{{api}}"},
            "Fetch includes the time that readers wait for new messages.",
        ),
        Panel(
            "Flush",
            "s",
            {p99("millpond_log_flush_seconds", "instance"): "{{instance}}"},
            "Producers wait as long.",
        ),
        Panel(
            "Event loop",
            "s",
            {p99("millpond_event_loop_lag_seconds", "instance"): "{{instance}}"},
            "How long every request waits for its turn.",
        ),
    ],
    "Readers": [
        Panel(
            "Lag of groups", "short", {total("millpond_group_lag", "group, topic"): "{{group}} / {{topic}}"}
        ),
        Panel(
            "Lag of subscriptions",
            "short",
            {total("millpond_subscription_lag", "subscription, topic"): "{{subscription}} / {{topic}}"},
        ),
        Panel(
            "Messages of subscriptions",
            "cps",
            {
                rate("millpond_queue_deliveries", "instance"): "delivered, {{instance}}",
                rate("millpond_queue_settled", "how"): "settled: {{how}}",
                rate("millpond_queue_failures", "how"): "failed: {{how}}",
            },
        ),
    ],
    "Storage": [
        Panel("Stored bytes", "bytes", {total("millpond_topic_bytes", "topic"): "{{topic}}"}),
        Panel(
            "Calls to the store",
            "ops",
            {
                rate("millpond_store_operations", "operation"): "{{operation}}",
                rate("millpond_store_errors", "operation"): "{{operation}}, failed",
            },
        ),
        Panel("Store", "s", {p99("millpond_store_seconds", "operation"): "{{operation}}"}, "p99 of a call."),
    ],
    "Brokers": [
        Panel(
            "CPU",
            "percentunit",
            {f"rate(process_cpu_seconds_total{SELECTED}{RATE})": "{{instance}}"},
            "1 is one core. A broker does most of its work on one.",
        ),
        Panel("Memory", "bytes", {f"process_resident_memory_bytes{SELECTED}": "{{instance}}"}),
        Panel(
            "Brokers and connections",
            "short",
            {
                f"millpond_cluster_brokers{SELECTED}": "brokers, as {{instance}} sees them",
                f"millpond_kafka_connections{SELECTED}": "Kafka connections, {{instance}}",
            },
        ),
    ],
}


def dashboard() -> dict[str, Any]:
    return {
        "title": "Millpond",
        "uid": "millpond",
        "tags": ["millpond"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [_variable("job", "label_values(millpond_build_info, job)", multi=False), _instances()]
        },
        "panels": list(_panels()),
    }


def _instances() -> dict[str, Any]:
    return _variable("instance", 'label_values(millpond_build_info{job="$job"}, instance)', multi=True)


def _variable(name: str, query: str, *, multi: bool) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "query": query,
        "refresh": 2,
        "multi": multi,
        "includeAll": multi,
        "current": {"text": "All", "value": "$__all"} if multi else {},
    }


def _panels() -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for title, panels in ROWS.items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}}
        top += 1
        for position, panel in enumerate(panels):
            number += 1
            line, column = divmod(position, COLUMNS)
            place = {"x": column * WIDTH, "y": top + line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            yield _panel(number, panel, place)
        top += -(-len(panels) // COLUMNS) * HEIGHT


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries.items())
        ],
    }


if __name__ == "__main__":
    DASHBOARD.write_text(json.dumps(dashboard(), indent=1) + "\n")
