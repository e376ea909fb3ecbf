"""franz-go, the Go client: its scenarios are in `peers/franz-go`."""

import pytest
from peers.programs import Program
from tests.peers.support import available, shows

from peers import programs

CLIENT = "franz-go"


@pytest.fixture(scope="session")
def franz_go() -> Program:
    return available(programs.franz_go)


@pytest.fixture
def ask(franz_go, bootstrap, prefix):
    return lambda scenario: franz_go.ask(scenario, bootstrap, prefix)


@shows(CLIENT, "produces idempotently with every codec")
def test_produce(ask):
    seen = ask("produce")
    assert seen == {"seen": ["none", "gzip", "snappy", "lz4", "zstd"], "count": 10, "idempotent": 10}


@shows(CLIENT, "keeps keys, headers, null values and timestamps")
def test_headers(ask):
    assert ask("headers") == {
        "key": "k",
        "null": True,
        "headers": 2,
        "header": "1",
        "time": 1_700_000_000_123,
    }


@shows(CLIENT, "balances a group cooperatively")
def test_group(ask):
    seen = ask("group")
    assert seen == {"state": "Stable", "members": 2, "protocol": "cooperative-sticky", "kept": 2}


@shows(CLIENT, "members of the consumer protocol share partitions (ServerSideBalancer)")
def test_consumer_protocol(ask):
    assert ask("consumer-protocol") == {"state": "Stable", "members": 2, "assignor": "uniform", "kept": 2}


@shows(CLIENT, "a static member of the consumer protocol returns to its partitions")
def test_static_members(ask):
    assert ask("static-members") == {"same": True, "moved": 0}


@shows(CLIENT, "a member of the consumer protocol subscribes to a regular expression")
def test_regex(ask):
    assert ask("regex") == {"topics": ["-regex-a", "-regex-b"]}


@shows(CLIENT, "consumes, transforms and produces in transactions")
def test_transactions(ask):
    seen = ask("transactions")
    assert seen["committed"] == ["a!", "b!", "c!", "d!"]
    assert seen["ends"] == [True, False, True, True, True]
    assert seen["uncommitted"] == 5


@shows(CLIENT, "creates, grows, describes and deletes topics (kadm)")
def test_topics(ask):
    seen = ask("topics")
    assert seen["again"].startswith("TOPIC_ALREADY_EXISTS")
    assert (seen["partitions"], seen["deleted"]) == (3, True)


@shows(CLIENT, "lists offsets, commits them, tells the lag and deletes groups (kadm)")
def test_offsets(ask):
    assert ask("offsets") == {"start": 0, "end": 3, "after": 0, "lag": 1, "deleted": True}


@shows(CLIENT, "deletes records (kadm)")
def test_records(ask):
    assert ask("records") == {"low": 2, "seen": ["c"]}


@shows(CLIENT, "changes and describes settings of topics (kadm)")
def test_configs(ask):
    assert ask("configs") == {"retention": "123456"}


@shows(
    CLIENT, "two members of a share group receive 40 records: 10 are released and come again, 1 is rejected"
)
def test_share_group(ask):
    again = sorted(f"{number} 2" for number in range(0, 40, 4))
    assert ask("share-group") == {"state": "Stable", "members": 2, "received": 50, "again": again}


@shows(CLIENT, "a member of a share group renews the lock of a record for three times as long as it lasts")
def test_share_renewal(ask):
    assert ask("share-renewal") == {"failed": "<nil>", "other": ["next 1"]}
