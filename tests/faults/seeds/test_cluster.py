"""Rows S24 and S30: agents that share a metadata service and S3; each partition has one of them, and another when that
one fails. On processes over a real PostgreSQL and an S3-protocol server, through the seeds' own interfaces.
"""

import json
import secrets
import subprocess
from collections import Counter
from contextlib import ExitStack

import psycopg
import pytest
from tests.s3 import CREDENTIALS, running_s3
from tests.seeds.processes import PATIENCE_SECONDS, Server, eventually

from millpond import Admin, Publisher, Subscriber

PARTITIONS = 9


@pytest.fixture(scope="module")
def agents(tmp_path_factory, postgres_url):
    """Three of them, with nothing in common but the two services."""
    name = f"seeds_{secrets.token_hex(4)}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    with ExitStack() as stack:
        store = stack.enter_context(running_s3()).format(prefix="cluster")
        settings = {
            "catalog": postgres_url.replace("/postgres?", f"/{name}?"),
            "storage": store,
            "lease": "6s",
        }
        yield [
            stack.enter_context(
                Server(tmp_path_factory.mktemp(f"agent-{number}"), variables=CREDENTIALS, **settings)
            )
            for number in range(3)
        ]


@pytest.fixture
def running(agents):
    """All of them, whatever the test before this one did."""
    for agent in agents:
        if not agent.is_running:
            agent.start()
    eventually(lambda: len(brokers(agents[0])) == 3, "three brokers know each other")
    return agents


def brokers(agent):
    with Admin(address=agent.grpc) as admin:
        return admin.cluster().brokers


def owners(agent, topic):
    with Admin(address=agent.grpc) as admin:
        return {each.partition: each.owner for each in admin.describe_topic(topic).partitions}


def curl(method, url, data=None):
    """As the seeds call it; -L goes where it is sent."""
    command = ["curl", "-sS", "-L", "-X", method, "-w", "\n%{http_code}", url]
    if data is not None:
        command += ["-d", data]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(body)


def create(agent, topic, partitions=PARTITIONS):
    with Admin(address=agent.grpc) as admin:
        admin.create_topic(topic, partitions=partitions)


def test_s24_requests_for_a_partition_reach_the_same_agent_whoever_is_asked(running):
    create(running[0], "routed")
    for number in range(PARTITIONS):
        for turn, agent in enumerate(running):
            status, placed = curl("POST", f"{agent.url}/topics/routed/produce/{number}", f"key:{turn}")
            assert (status, placed["offset"]) == (200, turn)
    for agent in running:
        for number in range(PARTITIONS):
            status, found = curl("GET", f"{agent.url}/topics/routed/fetch/{number}?offset=0&count=10")
            assert (status, [each["offset"] for each in found["messages"]]) == (200, [0, 1, 2])


def test_s24_heartbeats_are_seen_by_all(running):
    for agent in running:
        found = brokers(agent)
        assert [each.node_id for each in found] == [1, 2, 3]
        assert all(each.lease_ms > 0 for each in found)


def test_s30_partitions_are_balanced_and_move_when_one_fails(running):
    create(running[0], "balanced")
    before = owners(running[1], "balanced")
    assert sorted(Counter(before.values()).values()) == [3, 3, 3]
    failed = running[2]
    failed.kill()
    others = {running[0].grpc, running[1].grpc}
    eventually(
        lambda: set(owners(running[0], "balanced").values()) <= others, "the others serve what it owned"
    )
    after = owners(running[0], "balanced")
    assert {number for number in after if after[number] != before[number]} == {
        number for number, owner in before.items() if owner == failed.grpc
    }
    assert sorted(Counter(after.values()).values()) == [4, 5]
    failed.start()
    eventually(
        lambda: sorted(Counter(owners(running[0], "balanced").values()).values()) == [3, 3, 3],
        "it gets its share again",
    )


def test_s30_a_queue_goes_on_when_the_broker_of_its_partition_fails(running):
    create(running[0], "work", partitions=3)
    with Admin(address=running[0].grpc) as admin:
        admin.create_subscription("work", "billing", {"mode": "key_shared"})
    values = {f"{number}" for number in range(60)}
    with Publisher(address=running[0].grpc, timeout=PATIENCE_SECONDS) as publisher:
        for value in values:
            publisher.submit(value.encode(), topic="work", key=value.encode())
    failed = next(each for each in running[1:] if each.grpc in owners(running[0], "work").values())
    done = []
    with Subscriber("work", "billing", address=running[0].grpc, consumer="worker") as subscriber:
        for delivery in subscriber:
            done.append(delivery.data().decode())
            delivery.ack()
            if len(done) == 10:
                failed.kill()
            if set(done) == values:
                break
    assert set(done) == values
