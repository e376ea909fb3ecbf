"""The checks of a topic's limits on rows. Every error names the topic."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from millpond.model.errors import (
    InvalidRecord,
    InvalidTimestamp,
    MillpondError,
    RecordTooLarge,
    UnknownPartition,
)
from millpond.model.topics import Topic
from millpond.spark.kernels.encode import NEEDS_KEY, NO_SUCH_PARTITION, Rows


def refusal(problem: int, topic: Topic, partition: int) -> MillpondError:
    """The error for a row that the kernel refused."""
    if problem == NO_SUCH_PARTITION:
        return UnknownPartition(topic=topic.name, partition=partition)
    if problem == NEEDS_KEY:
        return InvalidRecord(reason=f"topic {topic.name!r} is compacted, and a row for it has no key")
    return InvalidRecord(reason=f"a row for topic {topic.name!r} has a header without a key")


def too_large(topic: Topic, size: int) -> RecordTooLarge:
    limit = topic.config().max_message_bytes
    message = (
        f"A row for topic {topic.name!r} makes a batch of {size} bytes, and its max.message.bytes is {limit}."
    )
    return RecordTooLarge(message, topic=topic.name, size=size, limit=limit)


def allowed_timestamps(rows: Rows, topics: Sequence[Topic], now_ms: int) -> NDArray[np.int64]:
    """The timestamp of each row: its own, or `now_ms` where the topic uses the append time. Raises an error
    for one that the topic's configs do not allow."""
    configs = [topic.config() for topic in topics]
    appended = np.array([config.append_time for config in configs])
    after = np.array([config.timestamp_after_max_ms for config in configs], dtype=np.int64)
    before = np.array([config.timestamp_before_max_ms for config in configs], dtype=np.int64)
    times = np.where(appended[rows.topic], now_ms, rows.timestamp) if appended.any() else rows.timestamp
    late, early = times - now_ms > after[rows.topic], now_ms - times > before[rows.topic]
    wrong = np.flatnonzero(late | early | (times < 0))
    if len(wrong):
        raise _unacceptable(topics[rows.topic[wrong[0]]], int(times[wrong[0]]), now_ms)
    return times


def _unacceptable(topic: Topic, timestamp: int, now_ms: int) -> MillpondError:
    if timestamp < 0:
        return InvalidRecord(reason=f"a row for topic {topic.name!r} has the time {timestamp}, before 1970")
    message = f"A row for topic {topic.name!r} has the time {timestamp}, too far from now ({now_ms}) for its configs."
    return InvalidTimestamp(message, topic=topic.name, timestamp=timestamp)
