"""Members of the consumer protocol (KIP-848) of Kafka's Java client: the scenarios are in `peers/consumer-protocol`."""

import pytest
from peers.programs import Program
from tests.peers.support import available, shows

from peers import programs

CLIENT = "Kafka's Java client"


@pytest.fixture(scope="session")
def members() -> Program:
    return available(programs.java_members)


@pytest.fixture
def version() -> str:
    return programs.kafka.VERSION


@pytest.fixture
def ask(members, version, bootstrap, prefix):
    return lambda scenario: members.ask(scenario, bootstrap, prefix)


@shows(CLIENT, "group.protocol=consumer: members share partitions, and move only those that must")
def test_members_share(ask):
    assert ask("share") == {
        "type": "Consumer",
        "state": "Stable",
        "assignor": "uniform",
        "members": 2,
        "on target": True,
        "moved": 2,
        "after": 4,
    }


@shows(CLIENT, "group.protocol=consumer: commits, and continues after the commit")
def test_commit(ask):
    assert ask("commit") == {"first": True, "both": True}


@shows(CLIENT, "group.protocol=consumer: a static member returns to its partitions; a second one is refused")
def test_static_members(ask):
    assert ask("static") == {"returned": True, "moved": 0, "second": "UnreleasedInstanceIdException"}


@shows(CLIENT, "group.protocol=consumer: subscribes to a regular expression (SubscriptionPattern)")
def test_regular_expression(ask):
    assert ask("regex") == {"topics": ["-regex-a", "-regex-b"], "wrong": "InvalidRegularExpression"}


@shows(CLIENT, "changes a group from the classic to the consumer protocol and back, member by member")
def test_migration(ask):
    assert ask("migration") == {
        "1": "Classic true",
        "2": "Consumer true",
        "3": "Consumer true",
        "4": "Consumer true",
        "5": "Classic true",
        "upgraded": "1 of 2",
    }
