"""Assigns keys to consumers.

Keys map to 65,536 slots by their hash, and a slot belongs to the consumer with the highest weighted score for it
(rendezvous hashing). A consumer that joins or leaves moves only the keys it gains or loses, and lowering a consumer's
weight moves only some of its keys. The assignment depends on consumers and weights alone, so it is not stored.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Final

SLOT_BITS: Final = 16
_MASK: Final = (1 << 64) - 1
FULL_WEIGHT: Final = 1.0
REMEMBERED_SLOTS_MAX: Final = 8_192
"""Above this number of cached slots, clearing the cache is faster than rescoring each slot when a consumer joins."""


def key_hash(key: bytes) -> int:
    """64 bits, independent of the hash that picks the partition."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


class KeyAssignment:
    def __init__(self) -> None:
        self._seeds: dict[str, tuple[int, float]] = {}
        self._best: dict[int, tuple[float, str]] = {}
        """Cache of requested slots: the highest score, and the consumer that has it."""

    def replace(self, weights: Mapping[str, float]) -> bool:
        """Set the current consumers. Returns whether anything changed."""
        before = self._seeds
        seeds = {consumer: (key_hash(consumer.encode()), weight) for consumer, weight in weights.items()}
        if seeds == before:
            return False
        self._seeds = seeds
        if len(self._best) > REMEMBERED_SLOTS_MAX:
            self._best = {}
        same = {each for each in seeds if seeds[each] == before.get(each)}
        self._best = {slot: best for slot, best in self._best.items() if best[1] in same}
        for consumer in seeds.keys() - same:
            self._compete(consumer)
        return True

    def owner(self, key: int) -> str | None:
        slot = key >> (64 - SLOT_BITS)
        best = self._best.get(slot)
        if best is None:
            if not self._seeds:
                return None
            best = self._best[slot] = max((_score(*seed, slot), each) for each, seed in self._seeds.items())
        return best[1]

    def _compete(self, consumer: str) -> None:
        """Rescore the cached slots for a consumer that is new or has another weight; it may win some of them."""
        seed, weight = self._seeds[consumer]
        for slot, best in self._best.items():
            own = (_score(seed, weight, slot), consumer)
            if own > best:
                self._best[slot] = own


class FirstCome:
    """Assigns every key to the consumer that attached first. Used for partitions that are delivered in order."""

    def __init__(self) -> None:
        self._first: str | None = None

    def replace(self, weights: Mapping[str, float]) -> bool:
        first = next(iter(weights), None)
        changed, self._first = first != self._first, first
        return changed

    def owner(self, key: int) -> str | None:
        del key
        return self._first


Assignment = KeyAssignment | FirstCome


def _score(seed: int, weight: float, slot: int) -> float:
    """Mixes seed and slot until every output bit depends on every bit of both (the finaliser of splitmix64)."""
    value = (seed ^ slot * 0x9E3779B97F4A7C15) & _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return -weight / math.log(((value ^ value >> 31) + 1) / 2**64 / (1 + 2**-52))
