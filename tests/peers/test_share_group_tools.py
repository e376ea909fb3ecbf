"""Kafka's command-line tools with share groups (KIP-932)."""

from contextlib import ExitStack

import pytest
from tests.clients.share_members import IMPLICIT, Share, until
from tests.peers.support import available, eventually, shows
from tests.peers.test_group_tools import rows
from tests.peers.tools import CLIENT, Tools

from peers import kafka

PARTITIONS = 2
MESSAGES = "abcde"


@pytest.fixture
def version():
    """3.9 has no tools for share groups."""
    available(kafka.jars)
    return kafka.VERSION


@pytest.fixture
def tools(version, bootstrap):
    return Tools(version, bootstrap)


@pytest.fixture
def share(bootstrap):
    """A share group of one member, which has accepted five messages of two partitions."""
    with ExitStack() as stack:
        share = Share(bootstrap, stack, lambda: None)
        share.create(PARTITIONS)
        for number, each in enumerate(MESSAGES):
            share.produce(each, partition=number % PARTITIONS)
        member = share.member(IMPLICIT)
        until(member.poll, lambda found: len(found) >= len(MESSAGES))
        assert set(member.commit()) == {None}
        share.only_member = member
        yield share


@pytest.fixture
def of_group(share):
    return ("share-groups", "--group", share.group)


@shows(CLIENT, "kafka-share-groups: lists share groups by state; kafka-groups knows their type")
def test_list(tools, share):
    assert share.group in tools.say("share-groups", "--list").split()
    [row] = rows(tools.say("share-groups", "--list", "--state"), share.group)
    assert row == {"GROUP": share.group, "STATE": "Stable"}
    [row] = rows(tools.say("groups", "--list", "--share"), share.group)
    assert row == {"GROUP": share.group, "TYPE": "Share", "PROTOCOL": "share"}


@shows(CLIENT, "kafka-share-groups: describes offsets, members and state of a share group")
def test_describe(tools, share, of_group):
    offsets = rows(tools.say(*of_group, "--describe"), share.group)
    assert sorted((row["TOPIC"], row["PARTITION"], row["LAG"]) for row in offsets) == [
        (share.topic, str(number), "0") for number in range(PARTITIONS)
    ]
    [member] = rows(tools.say(*of_group, "--describe", "--members", "--verbose"), share.group)
    assert (member["#PARTITIONS"], member["ASSIGNMENT"]) == ("2", f"{share.topic}:0,1")
    state = tools.say(*of_group, "--describe", "--state")
    assert "Stable" in state
    assert rows(state, share.group)[0]["GROUP"] == share.group


@shows(
    CLIENT, "kafka-share-groups: resets offsets of a share group, deletes them and it, once it has no members"
)
def test_reset_and_delete(tools, share, of_group):
    reset = (*of_group, "--reset-offsets", "--topic", share.topic, "--to-earliest", "--execute")
    refused = tools.run(*reset)
    assert "is not empty" in refused.stdout + refused.stderr
    refused = tools.run(*of_group, "--delete")
    assert "GroupNotEmptyException" in refused.stdout + refused.stderr
    share.only_member.close()
    tools.say(*reset)
    offsets = rows(tools.say(*of_group, "--describe"), share.group)
    assert sorted((row["START-OFFSET"], row["LAG"]) for row in offsets) == [("0", "2"), ("0", "3")]
    consume = ("--topic", share.topic, "--group", share.group, "--max-messages", "5", "--timeout-ms", "30000")
    consumed = tools.say("console-share-consumer", *consume).split()
    assert sorted(consumed[: len(MESSAGES)]) == list(MESSAGES)
    eventually(
        lambda: "Successful" in tools.run(*of_group, "--delete-offsets", "--topic", share.topic).stdout
    )
    tools.say(*of_group, "--delete")
    eventually(lambda: "GroupIdNotFoundException" in tools.run(*of_group, "--describe").stdout)


@shows(CLIENT, "kafka-configs: changes, describes and deletes configs of a share group, and refuses bad ones")
def test_configs(tools, share):
    alter = ("configs", "--alter", "--group", share.group)
    describe = ("configs", "--describe", "--group", share.group)
    tools.say(
        *alter, "--add-config", "share.record.lock.duration.ms=20000,share.isolation.level=read_committed"
    )
    described = tools.say(*describe)
    assert "share.record.lock.duration.ms=20000" in described
    assert "share.isolation.level=read_committed" in described
    assert "share.auto.offset.reset=earliest" in described
    refused = tools.run(*alter, "--add-config", "share.record.lock.duration.ms=1")
    assert "InvalidConfigurationException" in refused.stdout + refused.stderr
    tools.say(*alter, "--delete-config", "share.isolation.level")
    assert "share.isolation.level" not in tools.say(*describe)
