"""Records that should be there and are not: an error, or a warning and the next best place (`failOnDataLoss=false`).

A gap ahead is none of it: compaction and control records leave gaps. Below the log start, past the end, in a topic
that is gone or made anew: there something is missing.
"""

import logging
from dataclasses import dataclass

from millpond.model.errors import MillpondError, OffsetOutOfRange, TopicReplaced, UnknownPartition
from millpond.spark.source.offsets import NamedPartition

logger = logging.getLogger(__name__)
ADVICE = "With failOnDataLoss=false it is a warning"


@dataclass(frozen=True, slots=True)
class Losses:
    """Each method raises if `fail`, else it logs a warning and returns."""

    fail: bool

    def expired(self, name: NamedPartition, offset: int, log_start: int) -> None:
        message = (
            f"Offset {offset} of topic {name.topic!r}, partition {name.partition} is gone: its log starts at "
            f"{log_start}. {ADVICE} and reading goes on there."
        )
        self._lost(OffsetOutOfRange(message, **_facts(name), offset=offset, log_start=log_start))

    def beyond(self, name: NamedPartition, offset: int, end_offset: int) -> None:
        message = (
            f"Offset {offset} of topic {name.topic!r}, partition {name.partition} does not exist: its log ends at "
            f"{end_offset}. Was the topic made anew, or the catalog restored? {ADVICE}."
        )
        self._lost(OffsetOutOfRange(message, **_facts(name), offset=offset, end_offset=end_offset))

    def gone(self, name: NamedPartition) -> None:
        message = (
            f"Topic {name.topic!r}, partition {name.partition} was read before and is gone. {ADVICE}, and it "
            "is left out."
        )
        self._lost(UnknownPartition(message, **_facts(name)))

    def replaced(self, topic: str) -> None:
        message = (
            f"Topic {topic!r} was deleted and made anew while it was read: positions in the old one mean nothing "
            f"in this one. {ADVICE} and the new one is read from its start."
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
