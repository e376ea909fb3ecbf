"""The batches that both brokers receive. Times are ages: milliseconds before the moment at which batches are built.

The log of a case is a batch of two records that are two years old, the tested batch, and a batch of one current record.
So the log start after retention is 0, 2 (the tested batch was kept), 5 (it expired) or 6 (everything expired).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from millpond.log.admission import TRUSTED_AGE_MS
from millpond.records import Codec

SECOND: Final = 1_000
HOUR: Final = 3_600 * SECOND
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY
RETENTION_MS: Final = HOUR
SHORT_RETENTION_MS: Final = 60 * SECOND
"""For records that are current when they are sent: a run ends before they are this old."""
UNTIMED: Final = None
"""The age of a record without a timestamp (-1)."""
UNSET: Final = -1
FAR: Final = 2**60

OLD_AGES: Final = (2 * YEAR, 2 * YEAR - DAY)
CURRENT_AGES: Final = (0,)

Ages = tuple[int | None, ...]


class Sender(Enum):
    """Which program makes the batches."""

    RAW = "raw"
    KAFKAJS = "kafkajs"
    LIBRDKAFKA = "librdkafka"


@dataclass(frozen=True, slots=True)
class Absolute:
    """A value of a header field that is no age."""

    value: int


Claim = int | Absolute | None
"""What a header says: an age, a value, or None for the truth."""


@dataclass(frozen=True, slots=True)
class Case:
    """One topic, with one partition for each codec. `base` and `newest` are what the header of the tested batch claims,
    if it is raw."""

    name: str
    ages: Ages
    base: Claim = None
    newest: Claim = None
    retention_ms: int = RETENTION_MS
    configs: Mapping[str, str] = field(default_factory=dict)
    sender: Sender = Sender.RAW
    codecs: tuple[Codec, ...] = tuple(Codec)

    @property
    def batches(self) -> tuple[Ages, ...]:
        return (OLD_AGES, self.ages, CURRENT_AGES)

    @property
    def has_append_time(self) -> bool:
        return self.configs.get("message.timestamp.type") == "LogAppendTime"

    def is_understated(self) -> bool:
        """Whether the header claims a newest time that is more than `TRUSTED_AGE_MS` below both the newest record and
        the append."""
        timed = [age for age in self.ages if age is not None]
        if self.sender is not Sender.RAW or self.newest is None or not timed:
            return False
        if isinstance(self.newest, Absolute):
            return self.newest.value <= 0
        return self.newest - max(0, min(timed)) > TRUSTED_AGE_MS


APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
BEFORE_LIMIT: Final = {"message.timestamp.before.max.ms": str(HOUR)}

RAW_CASES: Final = (
    Case("old", (YEAR, YEAR - DAY, YEAR)),
    Case("half an hour old", (HOUR // 2, HOUR // 2, HOUR // 2)),
    Case("current", (0, 0, 0)),
    Case("old and current, true header", (YEAR, 0, 0)),
    Case("understated by a year", (YEAR, 0, 0), newest=YEAR),
    Case("understated by 61 s", (0, 0, 0), newest=61 * SECOND, retention_ms=SHORT_RETENTION_MS),
    Case("understated by 61 s, old base", (YEAR, 0, 0), newest=61 * SECOND, retention_ms=SHORT_RETENTION_MS),
    Case("understated, newest is 0", (0, YEAR, 0), newest=Absolute(0)),
    Case("understated, newest is unset", (0, YEAR, 0), newest=Absolute(UNSET)),
    Case("understated, base above newest", (YEAR, 0, YEAR), base=-DAY, newest=YEAR),
    Case("understated by 45 s", (0, 0, 0), base=45 * SECOND, newest=45 * SECOND, retention_ms=40 * SECOND),
    Case("overstated by a day", (YEAR, YEAR, YEAR), newest=-DAY),
    Case("overstated, far ahead", (YEAR, YEAR, YEAR), newest=Absolute(FAR)),
    Case("overstated, current header", (YEAR, YEAR, YEAR), newest=0),
    Case("overstated by 45 s", (0, 0, 0), newest=-45 * SECOND, retention_ms=5 * SECOND),
    Case("half an hour ahead", (-HOUR // 2, 0, 0)),
    Case("half an hour ahead, current header", (0, -HOUR // 2, 0), newest=0, retention_ms=5 * SECOND),
    Case("two hours ahead", (0, -2 * HOUR, 0)),
    Case("two hours ahead, old header", (YEAR, -2 * HOUR, 0), newest=YEAR),
    Case("two hours ahead, current header", (0, -2 * HOUR, 0), newest=0),
    Case("limit on old records, old header", (YEAR, YEAR, YEAR), configs=BEFORE_LIMIT),
    Case("limit on old records, old base", (YEAR, 0, 0), configs=BEFORE_LIMIT),
    Case("limit on old records, current header", (0, YEAR, 0), configs=BEFORE_LIMIT),
    Case("no timestamps", (UNTIMED, UNTIMED, UNTIMED)),
    Case("no timestamps, newest is 0", (UNTIMED, UNTIMED, UNTIMED), newest=Absolute(0)),
    Case("no timestamp beside old ones", (YEAR, UNTIMED, YEAR)),
    Case("no timestamp beside current ones", (UNTIMED, 0, UNTIMED)),
    Case("append time, old", (YEAR, YEAR, YEAR), configs=APPEND_TIME),
    Case("append time, no timestamps", (UNTIMED, UNTIMED, UNTIMED), configs=APPEND_TIME),
    Case("append time, understated", (YEAR, 0, 0), newest=YEAR, configs=APPEND_TIME),
)

KAFKAJS_CODECS: Final = (Codec.NONE, Codec.GZIP)
"""Those that kafkajs has by itself."""

KAFKAJS_CASES: Final = tuple(
    Case(f"kafkajs: {name}", ages, sender=Sender.KAFKAJS, codecs=KAFKAJS_CODECS)
    for name, ages in {
        "old": (YEAR, YEAR, YEAR),
        "old first, others unset": (YEAR, UNTIMED, UNTIMED),
        "old last, others unset": (UNTIMED, UNTIMED, YEAR),
        "all unset": (UNTIMED, UNTIMED, UNTIMED),
    }.items()
)
"""A message without a timestamp: kafkajs gives it the current time, which it does not count for the header."""

LIBRDKAFKA_CASES: Final = tuple(
    Case(f"librdkafka: {name}", ages, sender=Sender.LIBRDKAFKA)
    for name, ages in {
        "old": (YEAR, YEAR, YEAR),
        "old and current": (YEAR, 0, 0),
        "all -1": (UNTIMED, UNTIMED, UNTIMED),
        "-1 beside old ones": (YEAR, UNTIMED, YEAR),
        "-1 first, then current": (UNTIMED, 0, 0),
    }.items()
)

CASES: Final = (*KAFKAJS_CASES, *LIBRDKAFKA_CASES, *RAW_CASES)
"""Raw cases are sent last: some of them have a short retention."""
