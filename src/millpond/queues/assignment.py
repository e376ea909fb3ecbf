"""Which consumer a key belongs to.

Keys fall into 65,536 slots by their hash, and a slot belongs to the consumer with the highest weighted score for it
(rendezvous hashing): whoever comes or goes moves only the keys it gains or loses, and a lower weight moves only some
of its own away. It is a function of the consumers alone, so nothing of it is stored.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Final

SLOT_BITS: Final = 16
_MASK: Final = (1 << 64) - 1
FULL_WEIGHT: Final = 1.0


def key_hash(key: bytes) -> int:
    """64 bits, independent of the hash that picks the partition."""
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")


class KeyAssignment:
    def __init__(self) -> None:
        self._seeds: dict[str, tuple[int, float]] = {}
        self._owners: dict[int, str] = {}

    def replace(self, weights: Mapping[str, float]) -> bool:
        """The consumers that there are now. Whether anything changed."""
        seeds = {consumer: (key_hash(consumer.encode()), weight) for consumer, weight in weights.items()}
        if seeds == self._seeds:
            return False
        self._seeds = seeds
        self._owners = {}
        return True

    def owner(self, key: int) -> str | None:
        slot = key >> (64 - SLOT_BITS)
        owner = self._owners.get(slot)
        if owner is None and self._seeds:
            owner = self._owners[slot] = max(self._seeds, key=lambda each: (self._score(each, slot), each))
        return owner

    def _score(self, consumer: str, slot: int) -> float:
        seed, weight = self._seeds[consumer]
        return -weight / math.log((_mixed(seed ^ slot * 0x9E3779B97F4A7C15) + 1) / 2**64 / (1 + 2**-52))


class FirstCome:
    """Everything belongs to whoever came first, for partitions that are delivered as a whole."""

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


def _mixed(value: int) -> int:
    """Every bit of the result depends on every bit of the value (the finaliser of splitmix64)."""
    value &= _MASK
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31
