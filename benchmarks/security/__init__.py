"""Part `security`: what TLS, logins and ACLs cost, beside Apache Kafka with the same, in interleaved rounds of one run.

On a RAM disk, where the code determines the result. The first round warms up Java and is discarded. What ACLs cost is
less than what rounds differ by, so it is measured again in more rounds of Millpond alone.
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
PAIRS, QUICK_PAIRS = 15, 2
REQUESTS = 5_000
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
    """One message at a time: the smallest requests, of which a check is the largest part, and each is a commit of its
    own, so that pairs of rounds differ little."""
    pairs, requests = (QUICK_PAIRS, REQUESTS // 10) if quick else (PAIRS, REQUESTS)
    report.section(
        "CPU of a produce request, with SCRAM and ACLs against without",
        f"`millpond`, one message of 1000 B at a time, the median of {pairs} pairs in turns of {requests:,} requests.",
    )
    with tempfile.TemporaryDirectory(dir=RAM_DISK, prefix="millpond-bench-") as name:
        files = create_files(Path(name) / "certificates")
        with millponds(Path(name) / "millpond", files, (PLAINTEXT, ACLS)) as brokers:
            found = [_pair(brokers, requests, number) for number in range(WARM_UP_ROUNDS + pairs)]
    found = found[WARM_UP_ROUNDS:]
    ratios = [acls / without for without, acls in found]
    medians = [f"{statistics.median(each):.1f}" for each in zip(*found, strict=True)]
    bounds = [f"{each:.3f}" for each in (statistics.median(ratios), min(ratios), max(ratios))]
    report.table(("without, µs", "with, µs", "median ratio", "lowest", "highest"), [(*medians, *bounds)])
    share = _known_check_ns() / 1000 / statistics.median(without for without, _ in found)
    report.section(
        "One check as a share of that request",
        "A produce request makes one check for each topic. Pairs of rounds differ by more than that.",
    )
    report.table(("share",), [(f"{share:.2%}",)])


def _pair(brokers: Brokers, requests: int, number: int) -> tuple[float, float]:
    """CPU of the broker per request without and with ACLs, in microseconds; every other pair begins with ACLs."""
    found = {}
    for level in (PLAINTEXT, ACLS) if number % 2 else (ACLS, PLAINTEXT):
        subject = brokers.by_level[level]
        with load.fresh_topic(subject, 1) as topic:
            begun = subject.cpu_s()
            load.acknowledgements(subject, topic, requests)
            found[level] = (subject.cpu_s() - begun) / requests * 1e6
    print(f"   {'CPU of a request, µs':<42} {found[PLAINTEXT]:10.1f} {found[ACLS]:10.1f}", flush=True)
    return found[PLAINTEXT], found[ACLS]


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
    known = _known_check_ns()
    access = _access()
    names = iter([f"other-{number}" for number in range(CHECKS * REPEATED)])
    unknown = _best_ns(lambda: access.allows(AclOperation.WRITE, ResourceType.TOPIC, next(names)))
    report.table(("name", "ns"), [("asked for before", f"{known:.0f}"), ("new", f"{unknown:.0f}")])


def _known_check_ns() -> float:
    access = _access()
    return _best_ns(lambda: access.require(AclOperation.WRITE, ResourceType.TOPIC, "bench-1"))


def _access() -> Access:
    return Access(Identity(Principal("User", "bench"), ""), "127.0.0.1", _Acls())


def _best_ns(check: Callable[[], object]) -> float:
    return min(timeit.repeat(check, number=CHECKS, repeat=REPEATED)) / CHECKS * 1e9
