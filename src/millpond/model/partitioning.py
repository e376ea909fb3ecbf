"""Which partition a key belongs to: Kafka's own rule, so that clients of all interfaces agree."""

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """The same partition as the Java client's default partitioner."""
    return 0 if partitions == 1 else (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit hash that Kafka's clients use."""
    length = len(data)
    whole = length & ~3
    hashed = (SEED ^ length) & MASK
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ (word >> 24)) * MULTIPLIER & MASK
        hashed = (hashed * MULTIPLIER & MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    hashed = (hashed ^ (hashed >> 13)) * MULTIPLIER & MASK
    return hashed ^ (hashed >> 15)
