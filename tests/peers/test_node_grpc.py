"""A client in another language, made from our schemas alone: its scenarios are in `peers/node-grpc/run.js`."""

import pytest
from peers.programs import Program
from tests.peers.support import available, shows
from tests.seeds.processes import Server

from peers import programs

CLIENT = "gRPC for Node.js"


@pytest.fixture(scope="session")
def node() -> Program:
    return available(programs.node_grpc)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("millpond")) as running:
        yield running


@pytest.fixture
def ask(node, server, prefix):
    return lambda scenario: node.ask(scenario, server.grpc, prefix, str(programs.SCHEMAS))


@shows(CLIENT, "speaks MiniKafka's service")
def test_s7_the_minikafka_service_from_another_language(ask):
    assert ask("minikafka") == {
        "unknown": True,
        "numbers": [1, 2, 3],
        "payloads": ["two", "three"],
        "next": 4,
    }


@shows(CLIENT, "produces and polls")
def test_s7_produce_and_poll_from_another_language(ask):
    assert ask("produce_and_poll") == {
        "numbers": [1, 2, 3],
        "same": True,
        "key": "k",
        "headers": [["h", "v"]],
        "timestamp": 12,
        "absent": True,
        "next": 4,
    }


@shows(CLIENT, "produces and reads streams")
def test_s7_streams_from_another_language(ask):
    assert ask("stream") == {"numbers": True, "refused": "INVALID_TOPIC_NAME", "seen": True}


@shows(CLIENT, "follows a topic")
def test_s7_following_a_topic_from_another_language(ask):
    assert ask("follow") == {"seen": ["before", "after 1", "after 2"]}


@shows(CLIENT, "makes, describes and deletes topics; reads refusals")
def test_s7_topics_and_refusals_from_another_language(ask):
    assert ask("topics") == {
        "partitions": 3,
        "retention": "60000",
        "again": [True, 1],
        "range": True,
        "described": 3,
        "gone": True,
    }
