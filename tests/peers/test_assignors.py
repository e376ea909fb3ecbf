"""Our assignors beside Kafka's, on the histories of random groups: both start from the same previous target."""

import base64
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.peers.support import available, said
from tests.unit.groups.consumer.assignor_model import SMALL, Group, Sizes, histories

from millpond.groups.consumer.assignors import ASSIGNORS, TargetAssignment
from millpond.model.ids import TopicId, TopicPartition
from peers import programs

SIZES = (SMALL, Sizes(members=30, topics=8, partitions=40))
SEEDS = 80
ROUNDS = 6


class Step(NamedTuple):
    """One run of an assignor. Kafka breaks ties by the order of its maps: hashed ones in its coordinator, sorted ones
    in ours."""

    assignor: str
    order: str
    group: Group

    def kind(self) -> str:
        subscriptions = "equal" if self.group.has_equal_subscriptions() else "mixed"
        return f"{self.assignor}, {subscriptions} subscriptions, {self.order}"

    def lines(self) -> Iterator[str]:
        yield "N"
        for topic_id, partitions in self.group.partitions.items():
            yield f"T\t{encoded(topic_id)}\t{partitions}"
        for member in self.group.members:
            topics = ",".join(encoded(each) for each in member.topics & self.group.partitions.keys())
            target = ",".join(
                f"{encoded(each.topic_id)}:{each.partition}"
                for each in sorted(member.target)
                if each.topic_id in self.group.partitions
            )
            yield f"M\t{member.member_id}\t{member.instance_id or '-'}\t{topics}\t{target}"
        kind = "HOMOGENEOUS" if self.group.has_equal_subscriptions() else "HETEROGENEOUS"
        yield f"R\t{self.assignor}\t{kind}\t{self.order}"

    def decoded(self, line: str) -> TargetAssignment:
        columns = line.split("\t")
        return {
            member.member_id: frozenset(map(topic_partition, filter(None, column.split(","))))
            for member, column in zip(self.group.members, columns, strict=True)
        }


def encoded(topic_id: TopicId) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def topic_partition(text: str) -> TopicPartition:
    topic_id, _, partition = text.partition(":")
    return TopicPartition(TopicId(base64.urlsafe_b64decode(topic_id + "==")), int(partition))


def steps() -> list[Step]:
    return [
        Step(name, order, group)
        for sizes in SIZES
        for seed in range(SEEDS)
        for name, assign in ASSIGNORS.items()
        for group in histories(seed, assign, sizes, ROUNDS)
        for order in ("sorted", "hashed")
    ]


def sizes_of(assigned: TargetAssignment) -> list[int]:
    return sorted(map(len, assigned.values()))


def moved(group: Group, assigned: TargetAssignment) -> int:
    """Partitions whose owner changes, without those that had none."""
    owners = group.owners()
    new = {each: member_id for member_id, held in assigned.items() for each in held}
    return sum(new[each] != owner for each, owner in owners.items())


@pytest.mark.peers
def test_assignments_are_those_of_kafka():
    every = steps()
    program = available(programs.assignors)
    text = "".join(f"{line}\n" for step in every for line in step.lines())
    theirs = said(program.run(text=text)).split("\n")[: len(every)]
    counts: dict[str, Counter[str]] = {}
    for step, line in zip(every, theirs, strict=True):
        compare(step, step.decoded(line), counts.setdefault(step.kind(), Counter()))
    table(counts)
    for kind, count in counts.items():
        for each in promised(kind):
            assert count[each] == count["groups"], f"{kind}: {each}"


def promised(kind: str) -> list[str]:
    """What must be equal in every group. Kafka's `uniform` assigns the topics of equal subscriptions in the order of a
    hash set, and breaks all ties of mixed subscriptions, on which sizes may depend, by the order of its maps."""
    if kind.startswith("range") or kind == "uniform, mixed subscriptions, sorted":
        return ["equal assignments", "equal sizes", "equal moves"]
    if kind.startswith("uniform, equal"):
        return ["equal sizes", "equal moves"]
    return []


def compare(step: Step, theirs: TargetAssignment, count: Counter[str]) -> None:
    ours = ASSIGNORS[step.assignor](step.group.members, step.group.partitions)
    count["groups"] += 1
    count["equal assignments"] += ours == theirs
    count["equal sizes"] += sizes_of(ours) == sizes_of(theirs)
    count["equal moves"] += moved(step.group, ours) == moved(step.group, theirs)
    count["moved, ours"] += moved(step.group, ours)
    count["moved, Kafka"] += moved(step.group, theirs)


def table(counts: dict[str, Counter[str]]) -> None:
    columns = list(next(iter(counts.values())))
    print(f"\n{'':45}", *(f"{each:>18}" for each in columns))
    for kind, count in sorted(counts.items()):
        print(f"{kind:45}", *(f"{count[each]:18}" for each in columns))
