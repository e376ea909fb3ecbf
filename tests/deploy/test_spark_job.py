"""The Spark job of compose.yaml, run by a real Spark on a real broker."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.deploy.composition import ROOT
from tests.peers.support import available

from millpond.testing import Millpond
from peers import programs

SECONDS_MAX = 300

pytestmark = pytest.mark.peers


def test_it_counts_the_messages_of_each_partition(tmp_path):
    spark = available(programs.spark)
    python, jars = Path(spark.command[0]), spark.environment["PEERS_SPARK_JARS"]
    with Millpond({"default_partitions": 2}) as millpond:
        producer = millpond.producer("orders")
        for partition, count in enumerate((3, 4)):
            producer.send_many([b"x"] * count, partition=partition)
        environment = {
            **os.environ,
            "BOOTSTRAP_SERVERS": millpond.bootstrap_servers,
            "TOPIC": "orders",
            "ONCE": "true",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_SUBMIT_ARGS": f"--master local[2] --conf spark.ui.enabled=false --jars {jars} pyspark-shell",
        }
        done = subprocess.run(
            [python, ROOT / "deploy/spark/count.py"],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    rows = {tuple(line.strip("|").split("|")) for line in done.stdout.replace(" ", "").splitlines()}
    assert {("0", "3"), ("1", "4")} <= rows
