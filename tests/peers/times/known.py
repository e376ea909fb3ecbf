"""Every difference that is expected, with its reason. An entry holds for each codec of its cases, and names everything
that differs with the values of both brokers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

Fields = Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class KnownDifference:
    """`fields`: what is observed, with Kafka's value and ours. `reason` is part of docs/reference/kafka.md."""

    cases: tuple[str, ...]
    fields: Fields
    reason: str


NO_TIMESTAMPS: Final = (
    "If no record of a batch has a timestamp, the batch header stores the append time as its newest timestamp; "
    "Kafka stores -1. In Kafka a lookup by time ends at a segment of such records and returns no offset, even if "
    "a later segment has a matching record; here it returns that record."
)
NO_TIMESTAMP_BESIDE_OTHERS: Final = (
    "A record without a timestamp is as old as its append, so its batch is kept for the whole retention; Kafka "
    "ignores that record if another record of the batch has a timestamp, and expires the batch by that one."
)
UNDERSTATED: Final = (
    "A newest timestamp in a header that is within 60 s of the append is used as it is. If it is too low, records"
    " expire up to 60 s early, and a lookup by time within that span skips the batch; Kafka reads every record."
)
AHEAD_OF_HEADER: Final = (
    "A record with a timestamp in the future, in a batch whose header claims a newest timestamp within 60 s of "
    "the append, expires with current records, and a lookup by its timestamp does not find it; Kafka keeps it "
    "until its own timestamp is older than the retention."
)
OVERSTATED_BY_CURRENT_HEADER: Final = (
    "Old records in a batch whose header claims a newest timestamp within 60 s of the append are kept as long as "
    "current records; Kafka expires them by their own timestamps."
)
OVERSTATED: Final = (
    "If a newest timestamp in a header is too high, but not more than 60 s ahead of the append, records are kept "
    "up to 60 s longer than in Kafka."
)
TIMESTAMP_LIMITS: Final = (
    "Kafka checks `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms` for every record. Here, "
    "if the header's newest timestamp is within 60 s of the append, they are checked for the base and the newest "
    "timestamp of the header only; otherwise for every record."
)


def _kept(kafka: str, ours: str, names: Iterable[str]) -> Fields:
    return {f"kept: {name}": (kafka, ours) for name in names}


OLD_TIMES: Final = ("time 0", "time 2 y ago", "after 2 y ago", "time 729 d ago", "after 729 d ago")
"""Queries whose result is the first record, once the oldest batch has expired."""

TESTED_BATCH_STAYS: Final = {
    "kept: start": ("5", "2"),
    **_kept("5 (now)", "2 (1 y ago)", (*OLD_TIMES, "time 1 y ago")),
}

KNOWN_DIFFERENCES: Final[tuple[KnownDifference, ...]] = (
    KnownDifference(
        ("no timestamps", "no timestamps, newest is 0", "librdkafka: all -1"),
        {
            "headers": ("729 d ago, unset, now", "729 d ago, send time, now"),
            "stored: after 729 d ago": ("-", "5 (now)"),
            "stored: time now": ("-", "5 (now)"),
            **_kept("-", "5 (now)", (*OLD_TIMES, "time now")),
        },
        NO_TIMESTAMPS,
    ),
    KnownDifference(
        ("no timestamp beside old ones", "librdkafka: -1 beside old ones"),
        {"headers": ("729 d ago, 1 y ago, now", "729 d ago, send time, now"), **TESTED_BATCH_STAYS},
        NO_TIMESTAMP_BESIDE_OTHERS,
    ),
    KnownDifference(
        ("understated by 45 s",),
        {
            "headers": ("729 d ago, now, now", "729 d ago, 45 s ago, now"),
            "kept: start": ("2", "5"),
            **{
                f"stored: {name}": ("2 (now)", "5 (now)") for name in ("newest", "after 45 s ago", "time now")
            },
            **_kept(
                "2 (now)", "5 (now)", (*OLD_TIMES, "newest", "time 45 s ago", "after 45 s ago", "time now")
            ),
        },
        UNDERSTATED,
    ),
    KnownDifference(
        ("half an hour ahead, current header",),
        {
            "headers": ("729 d ago, 1800 s ahead, now", "729 d ago, now, now"),
            "stored: newest": ("3 (1800 s ahead)", "2 (now)"),
            "kept: start": ("2", "6"),
            "kept: newest": ("3 (1800 s ahead)", "-"),
            **{
                f"{stage}: {name}": ("3 (1800 s ahead)", "-")
                for stage in ("stored", "kept")
                for name in ("after now", "time 1800 s ahead", "time of send")
            },
            **_kept("2 (now)", "-", (*OLD_TIMES, "time now")),
        },
        AHEAD_OF_HEADER,
    ),
    KnownDifference(
        ("overstated, current header",),
        {"headers": ("729 d ago, 1 y ago, now", "729 d ago, now, now"), **TESTED_BATCH_STAYS},
        OVERSTATED_BY_CURRENT_HEADER,
    ),
    KnownDifference(
        ("overstated by 45 s",),
        {
            "headers": ("729 d ago, now, now", "729 d ago, 45 s ahead, now"),
            "kept: start": ("6", "2"),
            **_kept("-", "2 (now)", (*OLD_TIMES, "newest", "time now")),
        },
        OVERSTATED,
    ),
    KnownDifference(
        ("two hours ahead, current header",),
        {
            "produced": ("0, INVALID_TIMESTAMP, 2", "0, 2, 5"),
            "headers": ("729 d ago, now", "729 d ago, now, now"),
            "stored: end": ("3", "6"),
            "kept: end": ("3", "6"),
        },
        TIMESTAMP_LIMITS,
    ),
    KnownDifference(
        ("limit on old records, current header",),
        {
            "produced": ("INVALID_TIMESTAMP, INVALID_TIMESTAMP, 0", "INVALID_TIMESTAMP, 0, 3"),
            "headers": ("now", "now, now"),
            "stored: end": ("1", "4"),
            "kept: end": ("1", "4"),
        },
        TIMESTAMP_LIMITS,
    ),
)
