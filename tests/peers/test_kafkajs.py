"""kafkajs, a client without librdkafka or Java in it: its scenarios are in `peers/kafkajs/run.js`."""

import pytest
from peers.programs import Program
from tests.peers.support import available, shows

from peers import programs

CLIENT = "kafkajs"


@pytest.fixture(scope="session")
def kafkajs() -> Program:
    return available(programs.kafkajs)


@pytest.fixture
def ask(kafkajs, bootstrap, prefix):
    return lambda scenario: kafkajs.ask(scenario, bootstrap, prefix)


@shows(CLIENT, "creates, grows, lists and deletes topics")
def test_topics(ask):
    seen = ask("topics")
    assert seen == {
        "created": True,
        "again": False,
        "partitions": 3,
        "listed": True,
        "brokers": 1,
        "gone": True,
    }


@shows(CLIENT, "changes and describes settings of topics")
def test_configs(ask):
    assert ask("configs") == {"retention": "123456"}


@shows(CLIENT, "lists, sets, resets offsets and deletes records")
def test_offsets(ask):
    assert ask("offsets") == {"high": 3, "low": 0, "byTime": 0, "set": 2, "reset": 0, "lowAfter": 1}


@shows(CLIENT, "produces plain and gzip, with keys and headers")
def test_produce(ask):
    told = ask("produce")
    assert told["bases"] == [0, 2]
    assert [each["value"] for each in told["seen"]] == ["none 0", "none 1", "gzip 0", "gzip 1"]
    assert told["seen"][3]["key"] == "k1"
    assert told["seen"][3]["headers"] == [["codec", "gzip"], ["n", "1"]]


@shows(CLIENT, "produces idempotently")
def test_idempotent(ask):
    assert ask("idempotent") == {"seen": ["a", "b", "c"]}


@shows(CLIENT, "commits and aborts transactions, with offsets")
def test_transactions(ask):
    assert ask("transactions") == {"seen": ["kept", "kept too"], "committed": 7}


@shows(CLIENT, "shares partitions between two members and hands them over")
def test_group(ask):
    assert ask("group") == {
        "shared": [0, 1, 2, 3],
        "state": "Stable",
        "members": 2,
        "listed": True,
        "deleted": 0,
    }


@shows(CLIENT, "goes on where its group ended")
def test_resume(ask):
    assert ask("resume") == {"first": ["a", "b"], "then": ["c"]}


@shows(CLIENT, "seeks")
def test_seek(ask):
    assert ask("seek") == {"seen": ["a", "b", "c", "b", "c"]}
