"""Which records of a request or batch are to blame for its refusal, so that a producer can tell them from the others
(KIP-467)."""

from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

from millpond.model.errors import InvalidRecord, InvalidTimestamp

RECORD_ERRORS_MAX: Final = 10_000
"""Records that a refusal names, the first ones: as many as librdkafka puts into a batch."""
TEXT_CHARACTERS_MAX: Final = 200


class RecordErrors(NamedTuple):
    """The indexes of bad records, in order, and what is wrong with each. Its text is short: `1, 3, 5-90`."""

    indexes: tuple[int, ...]
    message: str

    def __str__(self) -> str:
        text = ""
        for first, last in _ranges(self.indexes):
            piece = str(first) if first == last else f"{first}-{last}"
            if len(text) + len(piece) > TEXT_CHARACTERS_MAX:
                return f"{text}, …"
            text = f"{text}, {piece}" if text else piece
        return text


def record_errors(indexes: Iterable[int], message: str) -> RecordErrors:
    return RecordErrors(tuple(islice(indexes, RECORD_ERRORS_MAX)), message)


def keyless_records(indexes: Iterable[int]) -> InvalidRecord | None:
    """The error of a compacted topic for records without a key; None if there are none."""
    reason = "a compacted topic does not accept records without a key"
    found = record_errors(indexes, f"{reason[0].upper()}{reason[1:]}.")
    if not found.indexes:
        return None
    return InvalidRecord(reason=reason, record=found.indexes[0], records=found)


def untimely_records(
    timestamp: int, now_ms: int, *, before_max_ms: int, after_max_ms: int, indexes: Iterable[int]
) -> InvalidTimestamp:
    """The error of records whose timestamps are outside the limits of their topic; `timestamp` is one of them."""
    if timestamp > now_ms:
        facts = {"apart_ms": timestamp - now_ms, "direction": "ahead of", "limit_ms": after_max_ms}
    else:
        facts = {"apart_ms": now_ms - timestamp, "direction": "behind", "limit_ms": before_max_ms}
    found = record_errors(indexes, "The timestamp is outside the limits of the topic.")
    return InvalidTimestamp(timestamp=timestamp, **facts, record=min(found.indexes), records=found)


def _ranges(indexes: Iterable[int]) -> Iterable[tuple[int, int]]:
    first = last = None
    for index in indexes:
        if last is not None and index != last + 1:
            assert first is not None, "set with the last one"
            yield first, last
            first = index
        first, last = index if first is None else first, index
    if first is not None and last is not None:
        yield first, last
