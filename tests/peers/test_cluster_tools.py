"""Kafka's command-line tools for partitions, brokers and transactions."""

import json

import confluent_kafka
import pytest
from tests.peers.support import shows
from tests.peers.tools import CLIENT, tools, version

__all__ = ["tools", "version"]

REQUEST_SECONDS_MAX = 30


@pytest.fixture
def open_transaction(tools, bootstrap, prefix):
    """The id of a transaction that has one message in a topic."""
    tools.create(prefix)
    name = f"{prefix}-id"
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(REQUEST_SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(prefix, b"a")
    producer.flush()
    yield name
    producer.abort_transaction(REQUEST_SECONDS_MAX)


@shows(CLIENT, "lists and describes open transactions and their producers, and finds none that hangs")
def test_transactions(tools, prefix, open_transaction):
    [row] = [
        line.split() for line in tools.say("transactions", "list").splitlines() if open_transaction in line
    ]
    producer_id = row[2]
    assert row[3] == "Ongoing"
    described = tools.say("transactions", "describe", "--transactional-id", open_transaction)
    assert described.splitlines()[1].split()[-1] == f"{prefix}-0"
    partition = ("--topic", prefix, "--partition", "0")
    producers = tools.say("transactions", "describe-producers", *partition).splitlines()[1:]
    assert [(line.split()[0], line.split()[-1]) for line in producers] == [(producer_id, "0")]
    hanging = tools.say("transactions", "find-hanging", "--topic", prefix, "--max-transaction-timeout", "0")
    assert prefix not in hanging


@shows(CLIENT, "describes partitions page by page (kafka-topics --describe)")
def test_partitions(tools, prefix):
    tools.create(prefix, 3)
    described = tools.say("topics", "--describe", "--topic", prefix)
    assert described.count("Partition: ") == 3
    assert tools.say("topics", "--describe", "--unavailable-partitions").strip() == ""


@shows(CLIENT, "asks for an election of leaders, which are elected already (kafka-leader-election)")
def test_leader_election(tools, prefix):
    tools.create(prefix)
    election = ("leader-election", "--election-type", "preferred")
    assert "already elected" in tools.say(*election, "--topic", prefix, "--partition", "0")
    tools.say(*election, "--all-topic-partitions")


@shows(CLIENT, "reassigns partitions to the broker that has them (kafka-reassign-partitions)")
def test_reassignment(tools, prefix, tmp_path):
    tools.create(prefix)
    leader = tools.say("topics", "--describe", "--topic", prefix).partition("Leader: ")[2].split()[0]
    wanted = {"topic": prefix, "partition": 0, "replicas": [int(leader)]}
    file = tmp_path / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    reassign = ("reassign-partitions", "--reassignment-json-file", str(file))
    assert "Successfully started" in tools.say(*reassign, "--execute")
    assert f"{prefix}-0 is completed" in tools.say(*reassign, "--verify")
    assert "None of the specified" in tools.say(*reassign, "--cancel")
    assert "No partition reassignments found" in tools.say("reassign-partitions", "--list")
