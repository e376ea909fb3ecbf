"""A group at work whose clients are upgraded one by one and back, and one whose coordinator is killed again and again.
Every message is read, no partition is owned twice at one time, and no commit is lost."""

import itertools
import os
import random
import time
from pathlib import Path

import pytest
from tests.faults.processes.checker import percentile
from tests.faults.processes.group_chaos import (
    GROUP,
    TOPIC,
    MemberChaos,
    MemberProcess,
    start_brokers,
    working_group,
)
from tests.faults.processes.group_member import KINDS
from tests.faults.processes.harness import LEASE_SECONDS, Brokers, Node, eventually

from millpond.catalog.coordinators import shard_of

CLASSIC, CONSUMER = "classic", "consumer"
ASSIGNORS = ("range", "cooperative-sticky")
UPGRADED, LED = 4, 6
"""Members of the two groups."""
KILLS, KILLS_LONG = 3, int(os.environ.get("MILLPOND_COORDINATOR_KILLS", "20"))
GO_ON_SECONDS_MAX = 120.0
COORDINATOR = """
    SELECT writers.address FROM coordinators JOIN writers ON writers.session = coordinators.owner
    WHERE coordinators.shard = {shard} AND writers.dead_since IS NULL
"""
TYPE = f"SELECT type FROM groups WHERE group_id = '{GROUP}'"
MEMBER_IDS = f"SELECT member_id FROM group_members WHERE group_id = '{GROUP}'"
OFFSETS = f"""
    SELECT topics.name, group_offsets.partition, committed_offset FROM group_offsets
    JOIN topics ON topics.id = group_offsets.topic_id WHERE group_id = '{GROUP}'
"""


# -- migration ---------------------------------------------------------------------------------------------------


def test_members_change_to_the_consumer_protocol_and_back_under_load(
    brokers: Brokers, tmp_path: Path, figures: list[str]
) -> None:
    _migrate(brokers, tmp_path, figures, ASSIGNORS[0])


@pytest.mark.long
def test_cooperative_members_change_to_the_consumer_protocol_and_back_under_load(
    brokers: Brokers, tmp_path: Path, figures: list[str]
) -> None:
    _migrate(brokers, tmp_path, figures, ASSIGNORS[1])


def _migrate(brokers: Brokers, folder: Path, figures: list[str], assignor: str) -> None:
    members = MemberChaos(folder, start_brokers(brokers), random.Random(1), (CLASSIC,), assignor)
    with working_group(brokers, members, UPGRADED) as writer:
        for kind in (CONSUMER, CLASSIC):
            _replace_all(brokers, members, kind)
            eventually(lambda kind=kind: brokers.rows(TYPE) == [(kind,)], f"the group is a {kind} one")
    logs = [life.log for life in members.lives]
    figures.append(
        f"group migration, {assignor}: {UPGRADED} classic members replaced by consumer ones and back, one by one; "
        f"{writer.sent} messages, unread 0, read again {sum(log.read_count for log in logs) - writer.sent}; commits "
        f"refused {sum(len(log.refusals) for log in logs)}; rebalance p50 {percentile(members.rebalances, 0.5):.2f} s, "
        f"longest {max(members.rebalances):.2f} s, n = {len(members.rebalances)}"
    )


def _replace_all(brokers: Brokers, members: MemberChaos, kind: str) -> None:
    for member in list(members.running):
        members.add(kind)
        members.settle()
        assert brokers.rows(TYPE) == [(CONSUMER,)], "a member of each protocol is in the group"
        member.leave()
        members.settle()


# -- the coordinator dies ----------------------------------------------------------------------------------------


def test_members_go_on_when_their_coordinator_is_killed(
    brokers: Brokers, tmp_path: Path, figures: list[str]
) -> None:
    _kill_coordinators(brokers, tmp_path, figures, KILLS)


@pytest.mark.long
def test_members_go_on_however_often_their_coordinator_is_killed(
    brokers: Brokers, tmp_path: Path, figures: list[str]
) -> None:
    _kill_coordinators(brokers, tmp_path, figures, KILLS_LONG)


def _kill_coordinators(brokers: Brokers, folder: Path, figures: list[str], kills: int) -> None:
    members = MemberChaos(folder, start_brokers(brokers), random.Random(1), KINDS, ASSIGNORS[0])
    seconds, kept = [], []
    with working_group(brokers, members, LED) as writer:
        for _ in range(kills):
            ids = set(brokers.rows(MEMBER_IDS))
            members.check()
            committed = _committed(members.lives)
            seconds.append(_kill_coordinator(brokers, members))
            stored = {f"{topic}-{number}": offset for topic, number, offset in brokers.rows(OFFSETS)}
            lost = {each: offset for each, offset in committed.items() if stored.get(each, 0) < offset}
            assert not lost, f"commits were lost: {lost}"
            kept.append(len(ids & set(brokers.rows(MEMBER_IDS))))
            members.settle()
    logs = [life.log for life in members.lives]
    figures.append(
        f"coordinator killed {kills} times (lease {LEASE_SECONDS:.0f} s): commits lost 0; until each of {LED} members "
        f"had a commit accepted again p50 {percentile(seconds, 0.5):.2f} s, longest {max(seconds):.2f} s; members that "
        f"kept their id {sum(kept)} of {kills * LED}; {writer.sent} messages, unread 0, read again "
        f"{sum(log.read_count for log in logs) - writer.sent}"
    )


def _committed(lives: list[MemberProcess]) -> dict[str, int]:
    """The highest offset of each partition that a coordinator has accepted."""
    found: dict[str, int] = {}
    for each, offset in itertools.chain.from_iterable(life.log.committed.items() for life in lives):
        found[each] = max(offset, found.get(each, 0))
    return found


def _kill_coordinator(brokers: Brokers, members: MemberChaos) -> float:
    """Returns after how many seconds each member had a commit accepted. The broker is started again then."""
    node = _coordinator(brokers)
    at = node.kill()

    def go_on() -> bool:
        members.check()
        return all((life.log.committed_at or 0.0) > at for life in members.running)

    eventually(go_on, "each member commits again", GO_ON_SECONDS_MAX)
    seconds = time.monotonic() - at
    node.start()
    brokers.until_balanced()
    return seconds


def _coordinator(brokers: Brokers) -> Node:
    def find() -> list[Node]:
        rows = brokers.rows(COORDINATOR.format(shard=shard_of(GROUP)))
        return [
            node for node in brokers.running for (address,) in rows if node.listeners["grpc"] in str(address)
        ]

    [node] = eventually(find, f"the group of {TOPIC} has a coordinator")
    return node
