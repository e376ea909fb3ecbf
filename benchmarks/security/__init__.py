"""Part `security`: what TLS, logins and ACLs cost, beside Apache Kafka with the same, in interleaved rounds of one run.

On a RAM disk, where the code determines the result. The first round warms up Java and is discarded. What ACLs cost is
less than what rounds differ by, so it is measured again in more and longer rounds of Millpond alone.
"""

import statistics
import tempfile
import timeit
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.kafka import load
from benchmarks.kafka.load import Shape
from benchmarks.report import Report
from benchmarks.security.connections import logins_per_s
from benchmarks.security.subjects import (
    ACLS,
    LEVELS,
    PLAINTEXT,
    Brokers,
    Level,
    apache,
    create_files,
    millponds,
)
from millpond.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from millpond.model.errors import NotAuthorized
from millpond.model.principals import Principal
from millpond.security.access import Access
from millpond.security.identity import Identity
from millpond.security.rights import Rights
from peers import Unavailable

ROUNDS, QUICK_ROUNDS = 3, 1
PAIRS, QUICK_PAIRS = 9, 2
WARM_UP_ROUNDS = 1
RAM_DISK = Path("/dev/shm")
LOGINS = 400
CHECKS, REPEATED = 1_000, 200
ACLS_OF_USER = 1_000

Samples = dict[tuple[str, str, Level], list[float]]
"""Values by measure, broker and level, one for each round."""


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/security.md, unless `only` or `quick` is set."""
    report = Report("TLS, logins and ACLs", "make bench PART=security" + (" (quick)" if quick else ""))
    if only is None or only in "brokers":
        _brokers(report, quick)
    if only is None or only in "acls":
        _acls(report, quick)
    if only is None or only in "checks":
        _checks(report)
    if only is None and not quick:
        report.write("security")


# -- whole brokers ----------------------------------------------------------------------------------------------------


def _brokers(report: Report, quick: bool) -> None:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    scale = 10 if quick else 1
    shapes = [Shape(1000, 1, 400_000 // scale), Shape(100, 16, 1_000_000 // scale)]
    samples: Samples = {}
    with tempfile.TemporaryDirectory(dir=RAM_DISK, prefix="millpond-bench-") as name, ExitStack() as running:
        brokers = _start(Path(name), running)
        for number in range(WARM_UP_ROUNDS + rounds):
            kept = samples if number >= WARM_UP_ROUNDS else {}
            turn = number % len(brokers)
            for each in brokers[turn:] + brokers[:turn]:
                _round(each, shapes, LOGINS // scale, kept)
    for shape in shapes:
        for verb in ("produce", "consume"):
            measure = f"{verb} {shape.name}"
            _table(report, samples, brokers, measure, "MB/s")
            _table(report, samples, brokers, measure, "CPU s/GB")
    _table(
        report, samples, brokers, "new connections", "logins/s", [each for each in LEVELS if each.has_users]
    )


def _start(folder: Path, running: ExitStack) -> list[Brokers]:
    files = create_files(folder / "certificates")
    found = [running.enter_context(millponds(folder / "millpond", files))]
    try:
        found.append(running.enter_context(apache(folder / "kafka", files)))
    except Unavailable as error:
        print(f"   kafka is left out: {error}", flush=True)
    return found


def _round(brokers: Brokers, shapes: Sequence[Shape], logins: int, samples: Samples) -> None:
    for level, subject in brokers.by_level.items():
        for shape in shapes:
            with load.fresh_topic(subject, shape.partitions) as topic:
                for verb, function in (("produce", load.produce), ("consume", load.consume)):
                    measured = function(subject, topic, shape)
                    name = f"{verb} {shape.name}"
                    _note(samples, f"{name}, MB/s", brokers, level, measured.megabytes_per_s)
                    _note(samples, f"{name}, CPU s/GB", brokers, level, measured.cpu_s_per_gb)
        if level.has_users:
            found = logins_per_s(subject, brokers.password, logins)
            _note(samples, "new connections, logins/s", brokers, level, found)


def _note(samples: Samples, measure: str, brokers: Brokers, level: Level, value: float) -> None:
    print(f"   {measure:<42} {brokers.name:<10} {level.name:<22} {value:10.2f}", flush=True)
    samples.setdefault((measure, brokers.name, level), []).append(value)


def _table(
    report: Report,
    samples: Samples,
    brokers: Sequence[Brokers],
    name: str,
    unit: str,
    levels: Sequence[Level] = LEVELS,
) -> None:
    """One row for each level: the median of each broker, its share of the broker's own plaintext, and both compared."""
    report.section(f"{name}, {unit}")
    names = [each.name for each in brokers]
    rows = []
    for level in levels:
        medians = [statistics.median(samples[f"{name}, {unit}", each, level]) for each in names]
        cells = []
        for each, median in zip(names, medians, strict=True):
            base = samples.get((f"{name}, {unit}", each, PLAINTEXT))
            share = f" ({median / statistics.median(base):.2f})" if base else ""
            cells.append(f"{median:,.2f}{share}")
        compared = [f"{medians[0] / medians[1]:.2f}"] if len(medians) == 2 else []
        rows.append((level.name, *cells, *compared))
    report.table(("", *names, *(["millpond : kafka"] if len(names) == 2 else [])), rows)


# -- ACLs alone -------------------------------------------------------------------------------------------------------


def _acls(report: Report, quick: bool) -> None:
    """More data and more rounds than above, because the difference is smaller than what rounds differ by."""
    pairs, scale = (QUICK_PAIRS, 10) if quick else (PAIRS, 1)
    shapes = [Shape(1000, 1, 2_000_000 // scale), Shape(100, 16, 3_000_000 // scale)]
    report.section(
        "CPU of producing, with SCRAM and ACLs against without",
        f"`millpond`, {pairs} pairs in turns: CPU seconds of the broker per GB, and their ratio in each pair.",
    )
    rows = []
    with tempfile.TemporaryDirectory(dir=RAM_DISK, prefix="millpond-bench-") as name:
        files = create_files(Path(name) / "certificates")
        with millponds(Path(name) / "millpond", files, (PLAINTEXT, ACLS)) as brokers:
            for shape in shapes:
                found = [_pair(brokers, shape, number) for number in range(WARM_UP_ROUNDS + pairs)]
                rows.append((shape.name, *_compared(found[WARM_UP_ROUNDS:])))
    report.table(("", "without", "with", "median ratio", "lowest", "highest"), rows)


def _pair(brokers: Brokers, shape: Shape, number: int) -> tuple[float, float]:
    """CPU seconds per GB without and with ACLs; every other pair begins with ACLs."""
    found = {}
    for level in (PLAINTEXT, ACLS) if number % 2 else (ACLS, PLAINTEXT):
        subject = brokers.by_level[level]
        with load.fresh_topic(subject, shape.partitions) as topic:
            found[level] = load.produce(subject, topic, shape).cpu_s_per_gb
    print(f"   {shape.name:<42} {found[PLAINTEXT]:10.3f} {found[ACLS]:10.3f}", flush=True)
    return found[PLAINTEXT], found[ACLS]


def _compared(pairs: Sequence[tuple[float, float]]) -> list[str]:
    ratios = [acls / without for without, acls in pairs]
    medians = [statistics.median(each) for each in zip(*pairs, strict=True)]
    return [f"{each:.3f}" for each in (*medians, statistics.median(ratios), min(ratios), max(ratios))]


# -- one check --------------------------------------------------------------------------------------------------------


class _Acls:
    """The source of rights of one user among many ACLs."""

    version = 1

    def __init__(self) -> None:
        operations = (AclOperation.READ, AclOperation.WRITE)
        self._acls = [
            Acl(
                ResourceType.TOPIC,
                PatternType.LITERAL,
                f"bench-{number}",
                "User:bench",
                "*",
                operations[number % 2],
                Permission.ALLOW,
            )
            for number in range(ACLS_OF_USER)
        ]

    def rights(self, principal: Principal, host: str) -> Rights:
        return Rights(principal, host, self._acls)

    def is_valid(self, identity: Identity) -> bool:
        return True

    def denied(self, principal: Principal, host: str, refusal: NotAuthorized) -> None:
        """Not measured."""


def _checks(report: Report) -> None:
    report.section(
        "One check of a right",
        f"`Access.require` of a user with {ACLS_OF_USER:,} ACLs, in this process: the same name again, and a name "
        f"that was not asked for before. The best of {REPEATED} runs of {CHECKS:,}.",
    )
    access = Access(Identity(Principal("User", "bench"), ""), "127.0.0.1", _Acls())
    known = _best_ns(lambda: access.require(AclOperation.WRITE, ResourceType.TOPIC, "bench-1"))
    names = iter([f"other-{number}" for number in range(CHECKS * REPEATED)])
    unknown = _best_ns(lambda: access.allows(AclOperation.WRITE, ResourceType.TOPIC, next(names)))
    report.table(("name", "ns"), [("asked for before", f"{known:.0f}"), ("new", f"{unknown:.0f}")])


def _best_ns(check: Callable[[], object]) -> float:
    return min(timeit.repeat(check, number=CHECKS, repeat=REPEATED)) / CHECKS * 1e9
