"""Many members of one group on the pure machine, in virtual time. They join, sync, beat and rejoin as Kafka's
clients do. `python -m tests.unit.groups.crowd` prints how many generations they need, and how long that takes.
"""

import heapq
import random
import statistics
from dataclasses import dataclass
from itertools import count

from millpond.groups.classic.group import ClassicGroup
from millpond.groups.classic.members import Protocol
from millpond.groups.classic.messages import (
    GroupPhase,
    GroupResponse,
    Joined,
    JoinRequest,
    Synced,
    SyncRequest,
)
from millpond.groups.limits import GroupLimits
from millpond.model.errors import MemberIdRequired, RebalanceInProgress

LATENCY_MS = 1
SAVE_MS = 2
HEARTBEAT_MS = 3_000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
SEEDS = 60


@dataclass
class Member:
    name: str
    member_id: str = ""
    generation: int = -1
    assigned: int = -1
    """The generation whose assignment it has."""


@dataclass(frozen=True)
class Figures:
    generations: int
    first_ms: int
    """From the first arrival until a member has an assignment."""
    all_ms: int
    """From the first arrival until every member has its assignment of the last generation."""


class Crowd:
    def __init__(self, delay_ms: int, arrivals_ms: list[int]) -> None:
        limits = GroupLimits(initial_rebalance_delay_ms=delay_ms)
        ids = count(1)
        self.group = ClassicGroup("crowd", limits, lambda name: f"{name}-{next(ids)}")
        self.members = [Member(f"m{number}") for number in range(len(arrivals_ms))]
        self.now = 0
        self._first_ms: int | None = None
        self._order = count()
        self._tickets = count()
        self._waiting: dict[int, Member] = {}
        self._events: list = []
        for member, at in zip(self.members, arrivals_ms, strict=True):
            self._at(at, lambda member=member: self._join(member))

    def run(self) -> Figures:
        while not self._is_settled():
            due = self.group.next_deadline_ms()
            if due is not None and (not self._events or due <= self._events[0][0]):
                self.now = max(self.now, due)
                self.group.tick(self.now)
            else:
                self.now, _, act = heapq.heappop(self._events)
                act()
            self._perform_effects()
        return Figures(self.group.state.generation, self._first_ms, self.now)

    def _is_settled(self) -> bool:
        generation = self.group.state.generation
        stable = self.group.state.phase is GroupPhase.STABLE
        return stable and all(member.assigned == generation for member in self.members)

    def _at(self, at_ms: int, act) -> None:
        heapq.heappush(self._events, (at_ms, next(self._order), act))

    def _later(self, act) -> None:
        self._at(self.now + LATENCY_MS, act)

    def _perform_effects(self) -> None:
        for effect in self.group.take_effects():
            if isinstance(effect, GroupResponse):
                member = self._waiting.pop(effect.ticket)
                self._later(lambda member=member, outcome=effect.outcome: self._hear(member, outcome))
            else:
                self._at(self.now + SAVE_MS, lambda save=effect: self.group.saved(save, None, self.now))

    def _ticket(self, member: Member) -> int:
        ticket = next(self._tickets)
        self._waiting[ticket] = member
        return ticket

    def _join(self, member: Member) -> None:
        request = JoinRequest(
            member_id=member.member_id,
            client_id=member.name,
            client_host="here",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=[Protocol("range", b"")],
        )
        self.group.join(request, self._ticket(member), self.now)

    def _sync(self, member: Member, assignments: dict[str, bytes]) -> None:
        request = SyncRequest(member.member_id, member.generation, assignments=assignments)
        self.group.sync(request, self._ticket(member), self.now)

    def _hear(self, member: Member, outcome) -> None:
        match outcome:
            case Joined(member_id, generation):
                member.member_id, member.generation = member_id, generation
                work = {each.member_id: b"work" for each in outcome.members}
                self._later(lambda: self._sync(member, work))
            case Synced():
                member.assigned = member.generation
                self._first_ms = self.now if self._first_ms is None else self._first_ms
                self._beat_later(member, member.generation)
            case MemberIdRequired(facts={"member_id": member_id}):
                member.member_id = member_id
                self._later(lambda: self._join(member))
            case RebalanceInProgress():
                self._later(lambda: self._join(member))
            case _:
                raise outcome

    def _beat_later(self, member: Member, generation: int) -> None:
        self._at(self.now + HEARTBEAT_MS, lambda: self._beat(member, generation))

    def _beat(self, member: Member, generation: int) -> None:
        if generation != member.generation:
            return
        try:
            self.group.heartbeat(member.member_id, None, generation, self.now)
        except RebalanceInProgress:
            self._later(lambda: self._join(member))
        else:
            self._beat_later(member, generation)


def scattered(count: int, within_ms: int, seed: int) -> list[int]:
    """Members that arrive at random; the first one at 0."""
    dice = random.Random(seed)
    arrivals = sorted(dice.randrange(within_ms + 1) for _ in range(count))
    return [each - arrivals[0] for each in arrivals]


def main() -> None:
    print(
        "| 50 members arrive within | delay | generations, mean and most | all assigned, median and latest |"
    )
    print("|---|---|---|---|")
    for within_ms in (0, 100, 500, 1_000, 2_000, 5_000):
        for delay_ms in (0, GroupLimits().initial_rebalance_delay_ms, 3_000):
            found = [Crowd(delay_ms, scattered(50, within_ms, seed)).run() for seed in range(SEEDS)]
            generations = [each.generations for each in found]
            times = [each.all_ms for each in found]
            print(
                f"| {within_ms} ms | {delay_ms} ms | {statistics.mean(generations):.2f}, {max(generations)} "
                f"| {statistics.median(times):.0f} ms, {max(times)} ms |"
            )


if __name__ == "__main__":
    main()
