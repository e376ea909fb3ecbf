"""How much each topic holds, and how far its readers are behind, as one broker sees it: sums over the partitions that
it owns. The sums of all brokers are those of the cluster."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class TopicUsage(NamedTuple):
    """`offsets` are those between log start and end; `end_offset` is the sum of the partitions' end offsets."""

    topic: str
    partitions: int
    offsets: int
    end_offset: int
    bytes: int


class ReaderLag(NamedTuple):
    """How many offsets of a topic a group or subscription (`reader`) has not finished."""

    reader: str
    topic: str
    offsets: int


@dataclass(frozen=True, slots=True)
class Usage:
    topics: Sequence[TopicUsage] = ()
    groups: Sequence[ReaderLag] = ()
    subscriptions: Sequence[ReaderLag] = ()
