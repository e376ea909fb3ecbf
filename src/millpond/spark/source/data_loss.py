"""Handles missing records: raises an error, or logs a warning and continues at the nearest position
(`failOnDataLoss=false`).

A gap further on in the log is no loss: compaction and control records leave gaps. Offsets below the log
start, offsets past the end, and a topic that was deleted or created again are losses.
"""

import logging
from dataclasses import dataclass

from millpond.model.errors import MillpondError, OffsetOutOfRange, TopicReplaced, UnknownPartition
from millpond.spark.source.offsets import NamedPartition

logger = logging.getLogger(__name__)
ADVICE = "With failOnDataLoss=false it is a warning"


@dataclass(frozen=True, slots=True)
class DataLossHandler:
    """Has a method for each kind of loss. It raises if `fail` is set, else it logs a warning and returns."""

    fail: bool

    def expired(self, name: NamedPartition, offset: int, log_start: int) -> None:
        message = (
            f"Offset {offset} of topic {name.topic!r}, partition {name.partition} is gone: its log starts at "
            f"{log_start}. {ADVICE} and reading continues there."
        )
        self._lost(OffsetOutOfRange(message, **_facts(name), offset=offset, log_start=log_start))

    def past_end(self, name: NamedPartition, offset: int, end_offset: int) -> None:
        message = (
            f"Offset {offset} of topic {name.topic!r}, partition {name.partition} does not exist: its log ends at "
            f"{end_offset}. Was the topic deleted and created again, or the catalog restored? {ADVICE}."
        )
        self._lost(OffsetOutOfRange(message, **_facts(name), offset=offset, end_offset=end_offset))

    def partition_gone(self, name: NamedPartition) -> None:
        message = (
            f"Topic {name.topic!r}, partition {name.partition} was read before and is gone. {ADVICE}, and it "
            "is left out."
        )
        self._lost(UnknownPartition(message, **_facts(name)))

    def topic_replaced(self, topic: str) -> None:
        message = (
            f"Topic {topic!r} was deleted and created again while it was read: positions in the old topic are not "
            f"valid in the new one. {ADVICE} and the new topic is read from its start."
        )
        self._lost(TopicReplaced(message, topic=topic))

    def _lost(self, error: MillpondError) -> None:
        if self.fail:
            raise error
        logger.warning(
            "records were lost",
            extra={
                "topic": error.facts["topic"],
                "partition": error.facts.get("partition"),
                "error": str(error),
            },
        )


def _facts(name: NamedPartition) -> dict[str, str | int]:
    return {"topic": name.topic, "partition": name.partition}
