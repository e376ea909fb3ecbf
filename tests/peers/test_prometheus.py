"""Alerts and dashboard in a real Prometheus: every alert is provoked once, a broker in order provokes none, and no
panel is empty while a broker works."""

import itertools
import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
import yaml
from tests.deploy.alert_cases import CASES, HEALTHY, Case
from tests.deploy.monitoring import ALERTS_FILE, queries
from tests.peers.support import available, eventually
from tests.ports import free_port

import millpond
from millpond.testing import Millpond
from peers import programs

pytestmark = pytest.mark.peers
SECONDS_MAX = 90.0


def program(name: str) -> str:
    return str(available(programs.prometheus) / name)


def check_rules(folder: Path, case: Case, expectations: dict[str, int]) -> None:
    """Runs the alerts over the series. `expectations` has the number of firing alerts by PromQL selector."""
    tests = {
        "rule_files": [str(ALERTS_FILE)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in case.series.items()],
                "promql_expr_test": [
                    {
                        "expr": f"count(ALERTS{{{selector}}}) or vector(0)",
                        "eval_time": f"{case.minutes}m",
                        "exp_samples": [{"labels": "{}", "value": count}],
                    }
                    for selector, count in expectations.items()
                ],
            }
        ],
    }
    file = folder / "case.yaml"
    file.write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [program("promtool"), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_alert_fires(name: str, tmp_path: Path) -> None:
    check_rules(tmp_path, CASES[name], {f'alertname="{name}",alertstate="firing"': 1})


def test_a_broker_in_order_provokes_no_alert(tmp_path: Path) -> None:
    check_rules(tmp_path, Case(HEALTHY, minutes=100), {'alertstate="firing"': 0, 'alertstate="pending"': 0})


@pytest.fixture
def broker() -> Iterator[Millpond]:
    with Millpond() as started:
        yield started


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A server that asks the broker every second; its address."""
    scrape = {"job_name": "millpond", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    address = f"127.0.0.1:{free_port()}"
    command = [program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)
        try:
            eventually(lambda: responds(address))
            yield address
        finally:
            server.terminate()
            server.wait(SECONDS_MAX)


def responds(address: str) -> bool:
    try:
        return bool(asked(address, "/-/ready"))
    except OSError:
        return False


def asked(address: str, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=SECONDS_MAX) as response:
        body: bytes = response.read()
    return body


def result(address: str, query: str) -> list[object]:
    for variable, value in {"$job": "millpond", "$instance": ".*", "$__rate_interval": "10s"}.items():
        query = query.replace(variable, value)
    found = json.loads(asked(address, "/api/v1/query?" + urllib.parse.urlencode({"query": query})))
    assert found["status"] == "success", found
    samples: list[object] = found["data"]["result"]
    return samples


def work(broker: Millpond, number: int) -> None:
    """A little of everything: each interface, a group, a subscription with a failure, and messages for the store."""
    kafka = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
    kafka.produce("orders", os.urandom(100_000))
    kafka.flush()
    with broker.producer("orders") as producer:
        producer.send(b"%d" % number)
    asked(broker.http.removeprefix("http://"), "/topics/orders")
    group = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    }
    reader = confluent_kafka.Consumer(group)
    reader.subscribe(["orders"])
    reader.consume(1, SECONDS_MAX)
    reader.commit(asynchronous=False)
    reader.close()
    create = {"attempts_max": 3}
    with millpond.Subscriber("orders", "billing", address=broker.grpc, create=create) as subscriber:
        delivery = subscriber.receive(SECONDS_MAX)
        delivery.nack(reason="to be seen in a panel") if number % 2 else delivery.ack()


def test_no_panel_is_empty_while_a_broker_works(broker: Millpond, tmp_path: Path) -> None:
    wanted = {name: query for name, query in queries().items() if not name.endswith("failed")}
    numbers = itertools.count()
    with prometheus(tmp_path, broker.http.removeprefix("http://")) as address:

        def empty() -> list[str]:
            work(broker, next(numbers))
            return [name for name, query in wanted.items() if not result(address, query)]

        eventually(lambda: not empty())
