"""Was anything lost, doubled, reordered or renumbered? Judged from what clients saw, as Jepsen does; pure.

Every message has a value of its own, `producer/partition/number`, and the numbers of a producer in a partition count
up. What was acknowledged must be in the log once, at the offset that was told; what was not may be there, but at most
once. The log is what a reader of everything sees when all has healed; whatever anybody read at any time must agree with
it.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

OK, LOST, REFUSED = "ok", "lost", "refused"
UNKNOWN = -1
"""The offset of what was answered without one, or not at all."""
SHOWN_MAX = 5


class Value(NamedTuple):
    producer: str
    partition: int
    number: int

    def encode(self, padding: int = 0) -> bytes:
        return f"{self.producer}/{self.partition}/{self.number}/".encode() + b"." * padding

    @classmethod
    def decode(cls, data: bytes) -> "Value":
        producer, partition, number, _ = data.decode().split("/", 3)
        return cls(producer, int(partition), int(number))


class Attempt(NamedTuple):
    """A message that somebody tried to send. Times are monotonic seconds."""

    value: Value
    began: float
    ended: float
    acknowledged: bool
    offset: int = UNKNOWN


class Seen(NamedTuple):
    """A message as a reader got it."""

    partition: int
    offset: int
    value: Value


class Delivered(NamedTuple):
    """A message as a subscriber took it, and what became of its acknowledgement."""

    partition: int
    offset: int
    value: Value
    taken: float
    settled: float
    """When the answer was known; infinity if it never was."""
    answer: str
    """OK is durable, LOST may be; what was REFUSED has come again, or was answered before."""
    key: bytes | None = None


Log = Mapping[int, Sequence[Seen]]
"""By partition, in order."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, each with a few examples. Nothing, if all is well."""

    faults: Mapping[str, list[object]] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        return not any(self.faults.values())

    def __str__(self) -> str:
        found = {name: each for name, each in self.faults.items() if each}
        return "; ".join(f"{name} {len(each)}: {each[:SHOWN_MAX]}" for name, each in found.items()) or "clean"

    def __or__(self, other: "Verdict") -> "Verdict":
        names = [*self.faults, *(name for name in other.faults if name not in self.faults)]
        return Verdict({name: [*self.faults.get(name, []), *other.faults.get(name, [])] for name in names})


def log_of(seen: Iterable[Seen]) -> dict[int, list[Seen]]:
    """What one reader of everything saw, as a log."""
    found: dict[int, list[Seen]] = defaultdict(list)
    for each in seen:
        found[each.partition].append(each)
    return dict(found)


def check_log(attempts: Iterable[Attempt], log: Log) -> Verdict:
    """The log against what producers were told."""
    attempts = list(attempts)
    places = _places(log)
    tried = {each.value for each in attempts}
    acknowledged = [each for each in attempts if each.acknowledged]
    return Verdict(
        {
            "lost": [each for each in acknowledged if each.value not in places],
            "duplicated": [(value, found) for value, found in places.items() if len(found) > 1],
            "renumbered": [each for each in acknowledged if _is_elsewhere(each, places)],
            "reordered": _reordered(log),
            "offsets out of order": _falling(log),
            "invented": [value for value in places if value not in tried],
            "in another partition": [value for value in places if places[value][0][0] != value.partition],
        }
    )


def check_reader(seen: Iterable[Seen], log: Log) -> Verdict:
    """One reader, or the members of a group together: it may see a message again, but never another at its place, and
    in the end it has seen all."""
    seen = list(seen)
    truth = {(each.partition, each.offset): each.value for run in log.values() for each in run}
    got = {(each.partition, each.offset) for each in seen}
    return Verdict(
        {
            "inconsistent": [each for each in seen if truth.get((each.partition, each.offset)) != each.value],
            "unseen": sorted(truth.keys() - got),
        }
    )


def check_sequential(seen: Iterable[Seen], log: Log) -> Verdict:
    """A reader that keeps its own position: everything once, in order, with nothing left out."""
    seen = list(seen)
    got = {number: [each.offset for each in run] for number, run in log_of(seen).items()}
    wanted = {number: [each.offset for each in run] for number, run in log.items()}
    odd = [
        (number, _first_difference(got.get(number, []), wanted[number]))
        for number in wanted
        if got.get(number, []) != wanted[number]
    ]
    return check_reader(seen, log) | Verdict({"not in sequence": list(odd)})


def check_queue(delivered: Iterable[Delivered], log: Log) -> Verdict:
    """Total queue: every message of the log was acknowledged, and none was taken and acknowledged again after that was
    durable. One that a client took late from its own buffer, where a broker that was replaced had put it before, is not
    acknowledged: its answer is LOST or REFUSED. To be asked when the subscription has no backlog."""
    delivered = list(delivered)
    settled: dict[tuple[int, int], float] = {}
    for each in delivered:
        if each.answer != REFUSED:
            place = (each.partition, each.offset)
            until = each.settled if each.answer == OK else float("inf")
            settled[place] = min(settled.get(place, until), until)
    truth = {(each.partition, each.offset): each.value for run in log.values() for each in run}
    return Verdict(
        {
            "unsettled": sorted(truth.keys() - settled.keys()),
            "inconsistent": [
                each for each in delivered if truth.get((each.partition, each.offset)) != each.value
            ],
            "delivered after its acknowledgement": [
                each
                for each in delivered
                if each.answer == OK and each.taken > settled.get((each.partition, each.offset), float("inf"))
            ],
        }
    )


def check_key_order(delivered: Iterable[Delivered]) -> Verdict:
    """Strict key_shared, over all brokers and consumers: what was acknowledged of a key was taken in the order of the
    log (O1), and no two consumers had one of its messages at a time (X1): an earlier one's answer was on its way
    before the next was taken."""
    by_key: dict[tuple[int, bytes], list[Delivered]] = defaultdict(list)
    for each in delivered:
        if each.key is not None and each.answer == OK:
            by_key[each.partition, each.key].append(each)
    falls: list[object] = []
    for run in by_key.values():
        run.sort(key=lambda each: each.taken)
        falls += [(before, after) for before, after in pairwise(run) if after.offset <= before.offset]
    return Verdict({"out of key order": falls})


def check_epochs(seen: Iterable[tuple[int, int, int]]) -> Verdict:
    """(partition, offset, leader epoch) of batches: along a partition epochs never fall."""
    ordered = sorted(set(seen))
    falls = [
        (before, after)
        for before, after in pairwise(ordered)
        if before[0] == after[0] and after[2] < before[2]
    ]
    return Verdict({"epochs fall": list(falls)})


# -- figures --------------------------------------------------------------------------------------------------


def failover_seconds(attempts: Iterable[Attempt], partitions: Iterable[int], since: float) -> list[float]:
    """For each partition: from `since` to the first answer to something that was sent after it."""
    wanted = set(partitions)
    first: dict[int, float] = {}
    for each in attempts:
        number = each.value.partition
        if number in wanted and each.acknowledged and each.began >= since:
            first[number] = min(first.get(number, float("inf")), each.ended)
    return [ended - since for ended in first.values()]


def windows(attempts: Iterable[Attempt]) -> list[tuple[float, float, int]]:
    """Of each partition the longest time in which nothing was acknowledged, between its first and its last: seconds,
    from when, which partition. The longest first."""
    ended: dict[int, list[float]] = defaultdict(list)
    for each in attempts:
        if each.acknowledged:
            ended[each.value.partition].append(each.ended)
    found = [
        max(
            ((after - before, before, number) for before, after in pairwise(sorted(times))),
            default=(0.0, 0.0, number),
        )
        for number, times in ended.items()
    ]
    return sorted(found, reverse=True)


def rates(attempts: Iterable[Attempt]) -> list[int]:
    """How many were acknowledged in each whole second between the first and the last."""
    ended = sorted(each.ended for each in attempts if each.acknowledged)
    counts = Counter(int(each - ended[0]) for each in ended)
    return [counts[second] for second in range(int(ended[-1] - ended[0]))]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of them that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, bisect_left(range(1, len(ordered) + 1), share * len(ordered)))]


def repeats(seen: Iterable[Seen]) -> int:
    """How many times something came that had come before."""
    counts = Counter((each.partition, each.offset) for each in seen)
    return sum(count - 1 for count in counts.values())


# -- inside ---------------------------------------------------------------------------------------------------


def _places(log: Log) -> dict[Value, list[tuple[int, int]]]:
    found: dict[Value, list[tuple[int, int]]] = defaultdict(list)
    for run in log.values():
        for each in run:
            found[each.value].append((each.partition, each.offset))
    return found


def _is_elsewhere(attempt: Attempt, places: Mapping[Value, list[tuple[int, int]]]) -> bool:
    told = (attempt.value.partition, attempt.offset)
    return attempt.offset != UNKNOWN and attempt.value in places and told not in places[attempt.value]


def _reordered(log: Log) -> list[object]:
    found: list[object] = []
    for run in log.values():
        newest: dict[str, int] = {}
        for each in run:
            if each.value.number < newest.get(each.value.producer, 0):
                found.append(each)
            newest[each.value.producer] = max(newest.get(each.value.producer, 0), each.value.number)
    return found


def _falling(log: Log) -> list[object]:
    return [after for run in log.values() for before, after in pairwise(run) if after.offset <= before.offset]


def _first_difference(got: Sequence[int], wanted: Sequence[int]) -> tuple[int, int | None, int | None]:
    place = next(
        (n for n, (a, b) in enumerate(zip(got, wanted, strict=False)) if a != b), min(len(got), len(wanted))
    )
    return place, got[place] if place < len(got) else None, wanted[place] if place < len(wanted) else None
