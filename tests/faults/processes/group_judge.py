"""Whether two members of a group owned a partition at one time, judged from what the members logged (no I/O).

A member believes that it owns a partition from `assigned` until it gives it up. Beliefs may overlap without any
fault: a member that was paused, or that cannot reach the coordinator, believes until it hears that its session has
ended. What the coordinator does promise is that such a member can no longer commit: its epoch is fenced before
another owns the partition.

So ownership is *proved* up to the time at which the member sent its last accepted commit of that partition. The
coordinator took that commit later than it was sent, so it held the member for the owner then. Two lives owned a
partition at one time if one of them became its owner while the ownership of the other is proved to go on: it sent a
commit after the other had logged `assigned`, and the commit was accepted.

The proof has no gaps where it matters: a member commits all its positions after each read, and once more when it is
asked to give partitions up, before it logs that it has done so. A coordinator that hands out a partition before its
owner has released it therefore accepts a commit of the former owner after the new one has logged `assigned`.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple


class Ownership(NamedTuple):
    """From when to when a member believed that it owned a partition, and up to when that is proved."""

    partition: str
    member: str
    since: float
    proved: float
    until: float


class Overlap(NamedTuple):
    partition: str
    earlier: Ownership
    later: Ownership


@dataclass(slots=True)
class _Belief:
    since: float
    proved: float


class MemberLog:
    """What one life of a member has logged so far, line by line."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.is_started = False
        self.read: set[tuple[str, int]] = set()
        self.read_count = 0
        self.lost_count = 0
        self.refusals: list[str] = []
        self.committed: dict[str, int] = {}
        """The highest offset of each partition that the coordinator has accepted from it."""
        self.committed_at: float | None = None
        """When it sent the last commit that was accepted."""
        self._ended: list[Ownership] = []
        self._beliefs: dict[str, _Belief] = {}

    @property
    def owned(self) -> set[str]:
        return set(self._beliefs)

    def add(self, line: dict[str, Any]) -> None:
        self.is_started = True
        at, partitions = line["at"], line["partitions"]
        match line["event"]:
            case "assigned":
                self._beliefs |= {each: _Belief(at, at) for each in partitions if each not in self._beliefs}
            case "revoked":
                self.end(at, partitions)
            case "lost":
                self.lost_count += len(self.end(at, partitions))
            case "committed":
                self._add_commit(line)
            case "refused":
                self.refusals.append(line["reason"])
            case "read":
                self._add_read(line["offsets"])

    def _add_commit(self, line: dict[str, Any]) -> None:
        for each in self._beliefs.keys() & set(line["partitions"]):
            self._beliefs[each].proved = line["sent"]
        for each, offset in line["offsets"].items():
            self.committed[each] = max(offset, self.committed.get(each, 0))
        if line["partitions"]:
            self.committed_at = line["sent"]

    def _add_read(self, offsets: dict[str, list[int]]) -> None:
        found = [(partition, offset) for partition, some in offsets.items() for offset in some]
        self.read.update(found)
        self.read_count += len(found)

    def end(self, at: float, partitions: Iterable[str] | None = None) -> list[Ownership]:
        """It gives these up, or all because it has died."""
        given_up = self.owned if partitions is None else self.owned & set(partitions)
        found = []
        for partition in given_up:
            belief = self._beliefs.pop(partition)
            found.append(Ownership(partition, self.member, belief.since, belief.proved, at))
        self._ended += found
        return found

    def ownerships(self) -> list[Ownership]:
        """Those that have not ended go on for ever."""
        going_on = [
            Ownership(partition, self.member, belief.since, belief.proved, float("inf"))
            for partition, belief in self._beliefs.items()
        ]
        return self._ended + going_on


def owned_twice(ownerships: Iterable[Ownership]) -> list[Overlap]:
    """Proved overlaps: faults of the coordinator."""
    return [each for each in _overlaps(ownerships) if each.earlier.proved > each.later.since]


def believed_twice(ownerships: Iterable[Ownership]) -> list[float]:
    """How many seconds each overlap of beliefs lasted: members that could not know."""
    return [
        min(each.earlier.until, each.later.until) - each.later.since
        for each in _overlaps(ownerships)
        if each.earlier.proved <= each.later.since
    ]


def _overlaps(ownerships: Iterable[Ownership]) -> list[Overlap]:
    by_partition: dict[str, list[Ownership]] = defaultdict(list)
    for each in ownerships:
        by_partition[each.partition].append(each)
    found = []
    for partition, some in by_partition.items():
        some.sort(key=lambda each: each.since)
        for number, later in enumerate(some):
            found += [
                Overlap(partition, earlier, later)
                for earlier in some[:number]
                if earlier.until > later.since and earlier.member != later.member
            ]
    return found
