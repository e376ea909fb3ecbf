"""Both brokers side by side, with a verdict for each partition of each case. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tests.peers.times.cases import CASES, Case
from tests.peers.times.known import KNOWN_DIFFERENCES, KnownDifference
from tests.peers.times.observing import Fields, Key

from millpond.log.admission import TRUSTED_AGE_MS
from millpond.records import Codec

if TYPE_CHECKING:
    from tests.peers.times.run import Observed

ABSENT = "(absent)"


class Verdict(Enum):
    EQUAL = "equal"
    KNOWN = "known difference"
    UNEXPECTED = "UNEXPECTED"


@dataclass(frozen=True, slots=True)
class Row:
    """One partition: what both brokers said of it, and what is wrong with that."""

    case: Case
    codec: Codec
    kafka: Fields
    ours: Fields
    expired_early_ms: int
    known: tuple[KnownDifference, ...]
    problems: tuple[str, ...]

    @property
    def differences(self) -> dict[str, tuple[str, str]]:
        return differences(self.kafka, self.ours)

    @property
    def verdict(self) -> Verdict:
        if self.problems:
            return Verdict.UNEXPECTED
        return Verdict.KNOWN if self.differences else Verdict.EQUAL


@dataclass(frozen=True, slots=True)
class Comparison:
    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    """Empty if every difference is listed, every listed one occurs, and nothing expired too early."""


def compare(found: "Sequence[Observed]", cases: Sequence[Case] = CASES) -> Comparison:
    kafka, ours = found
    rows = tuple(
        judged(case, codec, kafka.fields[key], ours.fields[key], ours.expired_early_ms[key])
        for case in cases
        for codec in case.codecs
        for key in [_key(case, codec)]
    )
    problems = [f"{row.case.name} [{row.codec.name.lower()}] {each}" for row in rows for each in row.problems]
    return Comparison(rows, (*problems, *wrong_entries(KNOWN_DIFFERENCES, cases)))


def _key(case: Case, codec: Codec) -> Key:
    return case.name, codec


def judged(
    case: Case,
    codec: Codec,
    kafka: Fields,
    ours: Fields,
    expired_early_ms: int,
    known: Sequence[KnownDifference] = KNOWN_DIFFERENCES,
) -> Row:
    chosen = tuple(each for each in known if case.name in each.cases)
    problems = [*_problems(differences(kafka, ours), chosen)]
    if expired_early_ms > TRUSTED_AGE_MS:
        problems.append(f"expired {expired_early_ms} ms before the end of its retention")
    return Row(case, codec, kafka, ours, expired_early_ms, chosen, tuple(problems))


def differences(kafka: Fields, ours: Fields) -> dict[str, tuple[str, str]]:
    names = [*kafka, *(name for name in ours if name not in kafka)]
    pairs = {name: (kafka.get(name, ABSENT), ours.get(name, ABSENT)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _problems(found: Mapping[str, tuple[str, str]], known: Sequence[KnownDifference]) -> Iterator[str]:
    listed = {name: pair for each in known for name, pair in each.fields.items()}
    for name, (kafka, ours) in found.items():
        if listed.get(name) != (kafka, ours):
            yield f"{name}: Kafka {kafka!r}, Millpond {ours!r}"
    for name, (kafka, ours) in listed.items():
        if name not in found:
            yield f"{name}: the listed difference (Kafka {kafka!r}, Millpond {ours!r}) does not occur"


def wrong_entries(known: Sequence[KnownDifference], cases: Sequence[Case]) -> Iterator[str]:
    """Entries that must not be in the list, whatever the brokers do."""
    by_name = {case.name: case for case in cases}
    for entry in known:
        for name in entry.cases:
            if name not in by_name:
                yield f"known.py: there is no case {name!r}"
            elif by_name[name].is_understated():
                yield f"known.py: {name!r} is understated by more than {TRUSTED_AGE_MS} ms and must have no difference"
