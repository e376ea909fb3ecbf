"""Whether a share group kept its promises, judged from what its members logged (no I/O).

* What was accepted is not delivered again. A delivery with a higher count than the accepted one is always one too many:
  whoever accepts has the newest delivery. With the same or a lower count it may be an older one that a paused member
  read late, so it counts only if it was asked for after the acknowledgement.
* A release that the broker has confirmed counts, so later deliveries have higher counts.
* With key order, a message is not delivered before a member began to accept the one of its key before it.
* Every message was accepted by somebody.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.faults.processes.share_member import ACCEPT, RELEASE

Place = tuple[int, int]
"""Partition and offset."""


class Delivery(NamedTuple):
    at: float
    """When it was logged."""
    since: float
    """It was not delivered before."""
    count: int
    member: str


@dataclass
class ShareHistory:
    keys: dict[Place, str] = field(default_factory=dict)
    deliveries: defaultdict[Place, list[Delivery]] = field(default_factory=lambda: defaultdict(list))
    accepting: dict[Place, float] = field(default_factory=dict)
    """When a member first began to accept it."""
    accepted: dict[Place, tuple[float, int]] = field(default_factory=dict)
    """When that was confirmed, and of which delivery."""
    accepted_twice: list[Place] = field(default_factory=list)
    released: list[tuple[Place, float, int]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def add(self, member: str, line: Mapping[str, Any]) -> None:
        at, messages = line["at"], line.get("messages", [])
        match line["event"]:
            case "got":
                for partition, offset, key, count in messages:
                    self.keys[partition, offset] = key
                    self.deliveries[partition, offset].append(Delivery(at, line["since"], count, member))
            case "settling":
                for partition, offset, _, fate in messages:
                    if fate == ACCEPT:
                        place = (partition, offset)
                        self.accepting[place] = min(at, self.accepting.get(place, at))
            case "settled":
                for partition, offset, count, fate in messages:
                    self._add_settled((partition, offset), at, count, fate)
            case "refused":
                self.refusals.append(line["reason"])

    def _add_settled(self, place: Place, at: float, count: int, fate: str) -> None:
        if fate == RELEASE:
            self.released.append((place, at, count))
        elif place not in self.accepted:
            self.accepted[place] = (at, count)
        elif count >= self.accepted[place][1]:  # a late one of an earlier delivery is ignored below the start
            self.accepted_twice.append(place)

    # -- what must be empty ----------------------------------------------------------------------------------------

    def delivered_again(self) -> list[tuple[Place, Delivery]]:
        return [
            (place, delivery)
            for place, (at, count) in self.accepted.items()
            for delivery in self.deliveries[place]
            if delivery.count > count or delivery.since > at
        ]

    def counted_too_low(self) -> list[tuple[Place, Delivery]]:
        return [
            (place, delivery)
            for place, at, count in self.released
            for delivery in self.deliveries[place]
            if delivery.since > at and delivery.count <= count
        ]

    def out_of_order(self) -> list[Place]:
        found, last = [], dict[tuple[int, str], Place]()
        for place in sorted(self.keys):
            before = last.get((place[0], self.keys[place]))
            last[place[0], self.keys[place]] = place
            first = min(each.at for each in self.deliveries[place])
            if before is not None and first < self.accepting.get(before, float("inf")):
                found.append(place)
        return found

    def lost(self, ends: Mapping[int, int]) -> list[Place]:
        wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
        return sorted(wanted - self.accepting.keys())

    # -- figures ---------------------------------------------------------------------------------------------------

    def delivery_count(self) -> int:
        return sum(map(len, self.deliveries.values()))

    def unseen(self) -> int:
        """Deliveries that no member has logged, such as those to members that died."""
        highest: Sequence[int] = [max(each.count for each in found) for found in self.deliveries.values()]
        return max(0, sum(highest) - self.delivery_count())


def history(logs: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> ShareHistory:
    found = ShareHistory()
    lines = sorted(((line, member) for member, some in logs for line in some), key=lambda each: each[0]["at"])
    for line, member in lines:
        found.add(member, line)
    return found
