"""Placement: distributes units (partitions, coordinator shards) evenly over brokers, with as few moves as possible.

A unit goes to the broker with the fewest units. Ties go to the broker with the fewest units of the same
family (the partitions of one topic), then to the one that rendezvous hashing prefers. Every broker that reads
the same catalog therefore computes the same placement, and no leader has to be elected.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from heapq import heapify, heapreplace
from typing import Any, TypeVar

Unit = TypeVar("Unit", bound=Hashable)
Family = Callable[[Any], Hashable]


def one_family(_: object) -> Hashable:
    """For units that need not be spread by family."""
    return None


def spread(
    units: Iterable[Unit],
    brokers: Collection[str],
    loads: Mapping[str, int],
    *,
    family: Family = one_family,
    family_counts: Mapping[tuple[str, Hashable], int] | None = None,
) -> dict[Unit, str]:
    """A broker for each unit without one. `loads` is the number of units each broker has, `family_counts` the number it
    has of a family."""
    counts = {broker: loads.get(broker, 0) for broker in brokers}
    counts_by_family = dict(family_counts or {})
    placed: dict[Unit, str] = {}
    for unit in units if brokers else ():
        group = family(unit)
        chosen = _with_most_room(unit, group, counts, counts_by_family)
        placed[unit] = chosen
        counts[chosen] += 1
        counts_by_family[chosen, group] = counts_by_family.get((chosen, group), 0) + 1
    return placed


def _with_most_room(
    unit: Hashable,
    group: Hashable,
    counts: Mapping[str, int],
    counts_by_family: Mapping[tuple[str, Hashable], int],
) -> str:
    fewest = min(counts.values())
    least_loaded = [broker for broker, count in counts.items() if count == fewest]
    family_counts = [counts_by_family.get((broker, group), 0) for broker in least_loaded]
    least = min(family_counts)
    tied = [broker for broker, count in zip(least_loaded, family_counts, strict=True) if count == least]
    return tied[0] if len(tied) == 1 else max(tied, key=_scores(unit))


def moves(
    owners: Mapping[Unit, str], brokers: Collection[str], *, family: Family = one_family
) -> dict[Unit, str]:
    """The units that must move so that the brokers' counts differ by one at most, each with its new broker.
    Units of owners that are not in `brokers` move, too."""
    if not brokers:
        return {}
    owned: dict[str, list[Unit]] = {broker: [] for broker in brokers}
    unassigned: list[Unit] = []
    for unit, owner in owners.items():
        owned.get(owner, unassigned).append(unit)
    counts = {broker: len(units) for broker, units in owned.items()}
    if not unassigned and max(counts.values()) - min(counts.values()) <= 1:
        return {}
    quotas = _quotas(counts, len(owners))
    family_counts = Counter((broker, family(unit)) for broker, units in owned.items() for unit in units)
    for broker, units in owned.items():
        unassigned += _surplus(broker, units, len(units) - quotas[broker], family, family_counts)
    loads = {broker: min(len(units), quotas[broker]) for broker, units in owned.items()}
    return spread(sorted(unassigned), brokers, loads, family=family, family_counts=family_counts)  # type: ignore[type-var]


def has_too_many(counts: Mapping[str, int], brokers: Collection[str], broker: str) -> bool:
    """Whether `moves` takes anything from this broker. `counts` is the number of units of each owner, in
    `brokers` or not."""
    if broker not in brokers:
        return counts.get(broker, 0) > 0
    known = {each: counts.get(each, 0) for each in brokers}
    return known[broker] > _quotas(known, sum(counts.values()))[broker]


def _quotas(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """The number of units each broker keeps. Brokers with more than their share keep the remainder, which
    saves moves. Among them, those with the fewest units come first: a broker that has given up its surplus
    keeps the quota by which it did so, even if brokers that rebalance later still have more."""
    share, odd = divmod(total, len(counts))

    def rank(broker: str) -> tuple[bool, int, str]:
        count = counts[broker]
        return count <= share, count if count > share else -count, broker

    ranked = sorted(counts, key=rank)
    return {broker: share + (place < odd) for place, broker in enumerate(ranked)}


def _surplus(
    broker: str, units: list[Unit], count: int, family: Family, family_counts: Counter[tuple[str, Hashable]]
) -> list[Unit]:
    """The units a broker gives up: from its largest families, those with its lowest rendezvous scores."""
    if count <= 0:
        return []
    families: dict[Hashable, list[Unit]] = {}
    for unit in sorted(units, key=lambda unit: _scores(unit)(broker), reverse=True):
        families.setdefault(family(unit), []).append(unit)
    heap = [(-len(members), index) for index, members in enumerate(families.values())]
    heapify(heap)
    ranked = list(families.values())
    given: list[Unit] = []
    for _ in range(count):
        size, index = heap[0]
        heapreplace(heap, (size + 1, index))
        given.append(ranked[index].pop())
        family_counts[broker, family(given[-1])] -= 1
    return given


def _scores(unit: Hashable) -> Callable[[str], int]:
    """The rendezvous score of the unit on each broker."""
    of_unit = zlib.crc32(f"{unit!r}@".encode())
    return lambda broker: zlib.crc32(broker.encode(), of_unit)
