"""The Spark service of compose.yaml as a plain process: pipelines over PostgreSQL and S3, beside a running broker."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deploy.composition import services

from millpond import Admin, Producer

SECONDS_MAX = 300

pytestmark = pytest.mark.spark


@pytest.fixture
def pipeline(java, cluster, tmp_path):
    """Runs `millpond pipeline …` with the environment of the file."""
    given = dict(cluster.brokers[0].environment)
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME") if name in os.environ}

    def run(*arguments):
        done = subprocess.run(
            [
                str(Path(sys.executable).with_name("millpond")),
                "pipeline",
                *arguments,
                "--master",
                "local[2]",
                "--json",
            ],
            env={**kept, **given},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_it_compacts_merges_and_tables_what_brokers_stored(cluster, pipeline, tmp_path):
    address = cluster.brokers[-1].grpc
    with Admin(address=address) as admin:
        admin.create_topic("prices", partitions=2, configs={"cleanup.policy": "compact"})
    with Producer("prices", address=address) as producer:
        for number in range(40):
            producer.send(b"%d" % number, key=b"sku %d" % (number % 4))
    (tmp_path / "tables.toml").write_text(
        '[[table]]\ntopic = "prices"\npath = "table"\nvalue = "string"\nkeys = "string"\n'
    )
    (command, *_) = services()["spark"]["command"]
    report = pipeline(command, "prices", "--rounds", "1", "--tables", "tables.toml")
    assert [name for name, each in report.items() if isinstance(each, dict) and "error" in each] == []
    assert report["table table"]["rows"] == 4, "compacted before it is read: the last price of each"
    with Producer("prices", address=address) as producer:
        assert producer.send(b"40", key=b"sku 0").number > 0, "the broker goes on"
    found = pipeline(
        "sql", "SELECT key, max(CAST(value AS INT)) FROM prices GROUP BY key ORDER BY key", "--text"
    )
    assert found["rows"] == [["sku 0", 40], ["sku 1", 37], ["sku 2", 38], ["sku 3", 39]]
