"""`format("millpond")` beside Spark's own Kafka source, which reads Apache Kafka and our interface: equal answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.peers.sources.queries import BATCH, STREAM
from tests.peers.support import available, said

from millpond.testing import Millpond
from peers import kafka, programs

pytestmark = pytest.mark.peers

QUERIES = Path(__file__).parent / "sources" / "queries.py"
SECONDS_MAX = 900
DAWN_MS = 1_700_000_000_000
QUESTIONS = [*BATCH, *(f"stream: {name}" for name in STREAM)]


def fill(address):
    """Two topics, the same wherever they are: keys, headers, times, codecs; transactions that end well and badly."""
    admin = AdminClient({"bootstrap.servers": address})
    keep = {"retention.ms": "-1"}  # the times are of long ago
    topics = [NewTopic("mixed", 3, 1, config=keep), NewTopic("plain", 1, 1, config=keep)]
    for made in admin.create_topics(topics).values():
        made.result(30)
    for codec, start in (("none", 0), ("lz4", 8), ("zstd", 14)):
        producer = Producer({"bootstrap.servers": address, "compression.type": codec})
        for number in range(start, start + 6):
            for partition in range(3):
                producer.produce(
                    "mixed",
                    None if number == 3 else f"{codec} {number}".encode(),
                    None if number % 4 == 0 else f"key {number}".encode(),
                    partition=partition,
                    timestamp=DAWN_MS + number * 1_000,
                    headers=[("n", str(number).encode()), ("empty", None)] if number % 2 else None,
                )
            producer.flush()
        producer.produce("plain", codec.encode(), partition=0, timestamp=DAWN_MS)
        producer.flush()
    transactional = Producer({"bootstrap.servers": address, "transactional.id": "teller"})
    transactional.init_transactions(30)
    for ends_well in (True, False, True):
        transactional.begin_transaction()
        for partition in (0, 2):
            value = b"committed" if ends_well else b"aborted"
            transactional.produce("mixed", value, partition=partition, timestamp=DAWN_MS + 20_000)
        transactional.flush()
        transactional.commit_transaction(30) if ends_well else transactional.abort_transaction(30)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    jars = ",".join(map(str, sorted(available(programs.spark_jars).glob("*.jar"))))
    available(kafka.jars)
    folder = tmp_path_factory.mktemp("sources")
    with Millpond() as millpond, kafka.running(folder / "broker") as apache:
        fill(apache.address)
        fill(millpond.bootstrap_servers)
        places = {
            "kafka": apache.address,
            "interface": millpond.bootstrap_servers,
            "path": str(millpond.data_dir),
        }
        done = subprocess.run(
            [sys.executable, QUERIES, json.dumps(places), folder],
            env={**os.environ, "PEERS_SPARK_JARS": jars, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    return json.loads(said(done).splitlines()[-1])


@pytest.mark.parametrize("question", QUESTIONS)
def test_spark_gets_the_same_from_our_kafka_interface(answers, question):
    assert answers["interface"][question] == answers["kafka"][question]


@pytest.mark.parametrize("question", QUESTIONS)
def test_our_source_answers_as_sparks_own(answers, question):
    ours, theirs = answers["millpond"][question], answers["kafka"][question]
    if isinstance(theirs, dict) and "error" in theirs:
        assert "error" in ours, "Spark's own source refuses"
    else:
        assert ours == theirs


def test_the_questions_have_answers(answers):
    """Else the comparisons above would show nothing."""
    refused = [name for name, each in answers["kafka"].items() if isinstance(each, dict) and "error" in each]
    assert len(answers["kafka"]["all of it"]) == 60
    assert len(refused) <= 12, refused


@pytest.mark.parametrize("way", ["interface to millpond", "millpond to interface"])
def test_a_checkpoint_of_one_source_is_continued_by_the_other(answers, way):
    moved = answers["moved"][way]
    offsets = [(row[1], row[2]) for row in moved["before"] + moved["after"]]
    assert len(offsets) == len(set(offsets)), "nothing twice"
    assert len(moved["after"]) == 12, "what came after the move, and nothing before it"
    assert all(row[4].startswith("after") for row in moved["after"])
