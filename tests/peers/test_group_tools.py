"""Kafka's command-line tools with groups of the consumer protocol (KIP-848)."""

import contextlib

import confluent_kafka
import pytest
from tests.peers.support import eventually, shows
from tests.peers.tools import CLIENT, tools, version

from peers import kafka

__all__ = ["tools", "version"]

PARTITIONS = 4
CONSUMER_PROPERTY = {kafka.VERSION: "--command-property", kafka.OLDER_CLIENT: "--consumer-property"}
"""The option of the console consumer, which has another name since 4.2."""


@pytest.fixture
def group(prefix):
    return f"{prefix}-group"


@pytest.fixture
def members(tools, bootstrap, prefix, group):
    """Two members, which share the partitions of a topic and have committed what is in it."""
    tools.create(prefix, PARTITIONS)
    tools.produce(prefix, *"abcd")
    with contextlib.ExitStack() as stack:
        yield _shared([_member(stack, bootstrap, prefix, group) for _ in range(2)])


def _member(stack, bootstrap, topic, group):
    member = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    stack.callback(member.close)
    member.subscribe([topic])
    return member


def _shared(members):
    read = []

    def have_read():
        for member in members:
            if (message := member.poll(0.1)) is not None and message.error() is None:
                read.append(message.value())
                member.commit(message, asynchronous=False)
        return len(read) >= PARTITIONS and all(len(each.assignment()) == 2 for each in members)

    eventually(have_read)
    return members


def rows(out: str, group: str) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    lines = [line.split() for line in out.splitlines() if line]
    header = next(line for line in lines if line[0] == "GROUP")
    return [dict(zip(header, line, strict=False)) for line in lines if line[0] == group]


@shows(CLIENT, "lists groups of the consumer protocol by type and state")
def test_list(tools, group, members):
    assert group in tools.say("consumer-groups", "--list", "--type", "consumer").split()
    assert group in tools.say("consumer-groups", "--list", "--state", "stable").split()
    assert group not in tools.say("consumer-groups", "--list", "--type", "classic").split()
    [row] = rows(tools.say("consumer-groups", "--list", "--type", "--state"), group)
    assert row == {"GROUP": group, "TYPE": "Consumer", "STATE": "Stable"}


@shows(CLIENT, "describes offsets, members and state of a group of the consumer protocol")
def test_describe(tools, prefix, group, members):
    describe = ("consumer-groups", "--group", group, "--describe")
    offsets = rows(tools.say(*describe), group)
    assert {row["PARTITION"] for row in offsets} == {str(number) for number in range(PARTITIONS)}
    assert sum(int(row["LAG"]) for row in offsets if row["LAG"] != "-") == 0
    listed = rows(tools.say(*describe, "--members", "--verbose"), group)
    assert [row["#PARTITIONS"] for row in listed] == ["2", "2"]
    assert {row["CONSUMER-ID"] for row in listed} == {row["CONSUMER-ID"] for row in offsets}
    state = tools.say(*describe, "--state", "--verbose")
    assert "uniform" in state
    assert "Stable" in state


@shows(CLIENT, "resets offsets of a group of the consumer protocol, and deletes it, once it has no members")
def test_reset_and_delete(tools, prefix, group, members):
    of_group = ("consumer-groups", "--group", group)
    reset = (*of_group, "--reset-offsets", "--topic", prefix, "--to-offset", "0", "--execute")
    refused = tools.run(*reset)
    assert "inactive" in refused.stdout + refused.stderr
    not_empty = tools.run(*of_group, "--delete")
    assert "GroupNotEmptyException" in not_empty.stdout + not_empty.stderr
    for member in members:
        member.close()
    tools.say(*reset)
    offsets = rows(tools.say(*of_group, "--describe"), group)
    assert [row["CURRENT-OFFSET"] for row in offsets] == ["0"] * PARTITIONS
    tools.say(*of_group, "--delete-offsets", "--topic", prefix)
    tools.say(*of_group, "--delete")
    eventually(lambda: group not in tools.say("consumer-groups", "--list").split())


@shows(CLIENT, "consumes from the console as a member of the consumer protocol")
def test_console(tools, prefix, group):
    tools.create(prefix, PARTITIONS)
    tools.produce(prefix, *"abcd")
    protocol = (CONSUMER_PROPERTY[tools.version], "group.protocol=consumer")
    assert sorted(tools.consume(prefix, 4, "--group", group, *protocol)) == list("abcd")
    [row] = rows(tools.say("consumer-groups", "--list", "--type"), group)
    assert row["TYPE"] == "Consumer"
    offsets = rows(tools.say("consumer-groups", "--group", group, "--describe"), group)
    assert {row["LAG"] for row in offsets} <= {"0", "-"}


# -- of the newest version only ---------------------------------------------------------------------------------------


newest_only = pytest.mark.parametrize("version", [kafka.VERSION], indirect=True)


@newest_only
@shows(CLIENT, "lists groups of all types (kafka-groups)")
def test_groups(tools, group, members):
    row = next(line.split() for line in tools.say("groups", "--list").splitlines() if group in line)
    assert row == [group, "Consumer", "consumer"]


@newest_only
@shows(CLIENT, "alters, describes and lists configs of groups")
def test_configs(tools, group):
    interval, session = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
    of_groups = ("configs", "--entity-type", "groups")
    of_one = (*of_groups, "--entity-name", group)
    tools.say(*of_one, "--alter", "--add-config", f"{session}=50000,{interval}=6000")
    described = tools.say(*of_one, "--describe")
    assert f"{session}=50000" in described
    assert f"{interval}=6000" in described
    assert group in tools.say(*of_groups, "--describe")
    out_of_bounds = tools.run(*of_one, "--alter", "--add-config", f"{session}=1")
    assert "InvalidConfigurationException" in out_of_bounds.stdout + out_of_bounds.stderr
    tools.say(*of_one, "--alter", "--delete-config", session)
    described = tools.say(*of_one, "--describe")
    assert f"{session}=50000" not in described
    assert f"{interval}=6000" in described
