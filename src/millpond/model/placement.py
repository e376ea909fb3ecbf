"""Who gets what: units (partitions, coordinator shards) over brokers, evenly, and with as few moves as that allows.

Whoever has room gets a unit: the broker with the fewest, of those the one with the fewest of the same family (the
partitions of one topic), of those the one that rendezvous hashing prefers. So every broker that looks at the same
catalog comes to the same answer, and nobody has to be elected to give it.
"""

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from heapq import heapify, heapreplace
from typing import Any, TypeVar

Unit = TypeVar("Unit", bound=Hashable)
Family = Callable[[Any], Hashable]


def one_family(_: object) -> Hashable:
    """For units that need not be spread by kind."""
    return None


def spread(
    units: Iterable[Unit],
    brokers: Collection[str],
    loads: Mapping[str, int],
    *,
    family: Family = one_family,
    kin: Mapping[tuple[str, Hashable], int] | None = None,
) -> dict[Unit, str]:
    """A broker for each unit that has none. `loads` says how many each broker has, `kin` how many of a family."""
    counts = Counter({broker: loads.get(broker, 0) for broker in brokers})
    relatives = Counter(kin or {})
    placed: dict[Unit, str] = {}
    for unit in units if brokers else ():
        group = family(unit)
        chosen = min(
            counts, key=lambda broker: (counts[broker], relatives[broker, group], -_score(unit, broker))
        )
        placed[unit] = chosen
        counts[chosen] += 1
        relatives[chosen, group] += 1
    return placed


def moves(
    owners: Mapping[Unit, str], brokers: Collection[str], *, family: Family = one_family
) -> dict[Unit, str]:
    """What must change hands so that the brokers' shares differ by one at most. Units of brokers that are not among
    them move, too."""
    if not brokers:
        return {}
    owned: dict[str, list[Unit]] = {broker: [] for broker in brokers}
    homeless: list[Unit] = []
    for unit, owner in owners.items():
        owned.get(owner, homeless).append(unit)
    quotas = _quotas({broker: len(units) for broker, units in owned.items()}, len(owners))
    kin = Counter((broker, family(unit)) for broker, units in owned.items() for unit in units)
    for broker, units in owned.items():
        homeless += _surplus(broker, units, len(units) - quotas[broker], family, kin)
    loads = {broker: min(len(units), quotas[broker]) for broker, units in owned.items()}
    return spread(sorted(homeless), brokers, loads, family=family, kin=kin)  # type: ignore[type-var]


def _quotas(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """Those who have most keep the odd ones: it saves moves."""
    share, odd = divmod(total, len(counts))
    ranked = sorted(counts, key=lambda broker: (-counts[broker], broker))
    return {broker: share + (rank < odd) for rank, broker in enumerate(ranked)}


def _surplus(
    broker: str, units: list[Unit], count: int, family: Family, kin: Counter[tuple[str, Hashable]]
) -> list[Unit]:
    """The units a broker gives up: of the families it has most of, those that it was least meant to have."""
    if count <= 0:
        return []
    families: dict[Hashable, list[Unit]] = {}
    for unit in sorted(units, key=lambda unit: _score(unit, broker), reverse=True):
        families.setdefault(family(unit), []).append(unit)
    heap = [(-len(members), index) for index, members in enumerate(families.values())]
    heapify(heap)
    ranked = list(families.values())
    given: list[Unit] = []
    for _ in range(count):
        size, index = heap[0]
        heapreplace(heap, (size + 1, index))
        given.append(ranked[index].pop())
        kin[broker, family(given[-1])] -= 1
    return given


def _score(unit: Hashable, broker: str) -> int:
    return zlib.crc32(f"{unit!r}@{broker}".encode())
