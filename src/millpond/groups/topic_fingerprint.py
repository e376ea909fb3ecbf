"""A short text that differs for different topics or numbers of partitions. Groups store it instead of them."""

from collections.abc import Mapping
from hashlib import blake2b

from millpond.model.ids import TopicId


def fingerprint_of(partitions: Mapping[TopicId, int]) -> str:
    """Of the number of partitions of each topic."""
    digest = blake2b(digest_size=8)
    for topic_id, count in sorted(partitions.items()):
        digest.update(topic_id + count.to_bytes(4, "big"))
    return digest.hexdigest()
