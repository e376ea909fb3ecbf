"""The same job where driver and executors are different processes: Spark's local cluster, and its own standalone one.

Each runs as a program of its own: one process has one Spark.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.spark.topics import fill, serving

COUNT = 3_000
QUICK_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
EXPECTED = f"ROWS {2 * COUNT} {2 * COUNT}"
JOB = """
import sys
from millpond.spark import session

spark = session("clusters", master=sys.argv[1], fast_start=True, config={
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.local.dir": sys.argv[3],
})
topic = spark.read.format("millpond").option("subscribe", "orders").option("minPartitions", 4).load(sys.argv[2])
seen = topic.selectExpr("partition", "offset", "decode(value, 'utf-8') as value").collect()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1  # one of them is the driver
assert executors >= 1
print("ROWS", len(seen), len({(row.partition, row.offset, row.value) for row in seen}))
spark.stop()
"""


@pytest.fixture
async def orders(tmp_path) -> Path:
    async with serving(tmp_path / "data") as broker:
        await fill(broker, "orders", 2, COUNT, per_batch=500)
    return tmp_path / "data"


def run_job(master: str, orders: Path, work: Path) -> str:
    command = [sys.executable, "-c", JOB, master, str(orders), str(work / "local")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=work, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout


def test_executors_of_a_standalone_master_and_worker_read_the_topic(java, orders, tmp_path):
    with standalone(tmp_path) as master:
        assert EXPECTED in run_job(master, orders, tmp_path)


def test_executors_of_a_local_cluster_read_the_topic(java, orders, tmp_path):
    assert EXPECTED in run_job("local-cluster[2,1,512]", orders, tmp_path)


@contextmanager
def standalone(work: Path) -> Iterator[str]:
    """A master and a worker with two cores, from the installed pyspark."""
    port, deploy = free_port(), "org.apache.spark.deploy"
    url = f"spark://127.0.0.1:{port}"
    ports = ["--host", "127.0.0.1", "--webui-port", "0"]
    with process(work, f"{deploy}.master.Master", *ports, "--port", str(port)) as master:
        wait_for(master, port)
        worker = ["--cores", "2", "--memory", "1g", "--work-dir", str(work / "worker"), url]
        with process(work, f"{deploy}.worker.Worker", *ports, *worker):
            yield url


@contextmanager
def process(work: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    import pyspark

    home = Path(pyspark.__file__).parent
    own = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    own["SPARK_DAEMON_JAVA_OPTS"] = QUICK_JAVA
    with (work / f"{arguments[0].rpartition('.')[2]}.log").open("wb") as log:
        running = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments], stdout=log, stderr=log, env={**os.environ, **own}
        )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(30)


def wait_for(running: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(300):
        assert running.poll() is None, "the master has ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"nobody listens on {port}")
