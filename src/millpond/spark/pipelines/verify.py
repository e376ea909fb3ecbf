"""`verify`: checks that everything the catalog refers to exists, is undamaged, and matches the catalog.
Changes nothing.

The driver checks rows, tasks check bytes, and the driver compares the store's listing with the catalog's
objects. Brokers and other pipelines may run at the same time, so anything that looks wrong is looked up
again, and only what is wrong every time is reported. Objects without rows are not damage: those of live
writers are in flight, and a broker will collect the others.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from millpond.catalog import audit, transactions, writers
from millpond.catalog import extents as catalog_extents
from millpond.catalog import partitions as catalog_partitions
from millpond.catalog.database import CatalogTransaction, Database
from millpond.catalog.transactions import Aborted
from millpond.model.errors import CorruptObject, ObjectMissing, UnknownPartition
from millpond.model.extents import Extent
from millpond.model.ids import Session, TopicPartition
from millpond.model.topics import Topic
from millpond.objects.store import ObjectStore
from millpond.records import Buffer, stamp_run
from millpond.rewriting.verification import (
    UNKNOWN,
    DataFault,
    FaultKind,
    check_aborted,
    check_batches,
    check_chain,
    check_journal_extent,
    check_markers,
    check_segment_object,
    same_extent,
    seen_again,
)
from millpond.segments.frame import FRAME_BYTES
from millpond.segments.keys import JOURNALS, SEGMENTS, session_of
from millpond.spark.pipelines.job import PipelineJob, Report, run_recorded
from millpond.spark.pipelines.tasks import perform
from millpond.spark.place import Place, database, store

ITEM_BYTES_MAX: Final = 64 * 1024 * 1024
EXTENTS_PER_PAGE: Final = 4_000
EXTENTS_PER_READ: Final = 500
READ_ATTEMPTS_MAX: Final = 3
FINDINGS_MAX: Final = 1_000
"""Maximum number of findings of each kind in a report; their total is always reported."""
KEYS_MAX: Final = 100
OK: Final = "ok"
DAMAGED: Final = "damaged"


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """Which topics: names or patterns with `*`. If empty: all topics, and the objects of the store."""

    topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VerifyItem:
    """The extents of a partition whose base offsets lie in [start, end)."""

    place: Place
    topic_partition: TopicPartition
    start: int
    end: int
    extents: int
    bytes: int


@dataclass(frozen=True, slots=True)
class VerifyResult:
    extents: int
    records: int
    bytes: int
    findings: tuple[DataFault, ...]


LocatedFault = tuple[TopicPartition | None, DataFault]


def run(job: PipelineJob, request: VerifyRequest) -> Report:
    topics = job.topics(request.topics)
    looks_at_objects = not request.topics

    def verify() -> Report:
        return _verify(job, topics, looks_at_objects=looks_at_objects)

    return run_recorded(job, "verify", [topic.name for topic in topics], verify)


def _verify(job: PipelineJob, topics: Sequence[Topic], *, looks_at_objects: bool) -> Report:
    started = time.perf_counter()
    topic_partitions = [
        TopicPartition(topic.id, number) for topic in topics for number in range(topic.partitions)
    ]
    findings: list[LocatedFault] = []
    items: list[VerifyItem] = []
    for topic_partition in topic_partitions:
        findings.extend((topic_partition, finding) for finding in check_rows(job.database, topic_partition))
        items.extend(plan(job.database, job.place, topic_partition))
    totals = {"topics": len(topics), "partitions": len(topic_partitions)}
    if job.is_dry_run:
        extents, size = sum(item.extents for item in items), sum(item.bytes for item in items)
        return {**totals, "extents": extents, "bytes": size}
    extents = records = size = 0
    for done, (item, result) in enumerate(_results(job, items), start=1):
        extents, records, size = extents + result.extents, records + result.records, size + result.bytes
        findings.extend((item.topic_partition, finding) for finding in result.findings)
        job.progress(done, len(items), "verifying")
    counted = {**totals, "extents": extents, "records": records, "bytes": size}
    about_objects: Report = {}
    if looks_at_objects:
        about_objects, wrong = inspect_objects(job.database, store(job.place))
        findings.extend((None, finding) for finding in wrong)
    findings = list(dict.fromkeys(findings))  # two items may report the same merged extent
    seconds = time.perf_counter() - started
    return {
        **_state(findings),
        **counted,
        **_findings(findings, {topic.id: topic.name for topic in topics}),
        **about_objects,
        "seconds": round(seconds, 3),
        "mb_per_second": round(size / 1e6 / seconds, 1),
    }


def _results(job: PipelineJob, items: Sequence[VerifyItem]) -> Iterator[tuple[VerifyItem, VerifyResult]]:
    if not items:
        return iter(())
    return zip(items, perform(job.spark, items, work), strict=True)


# -- rows -----------------------------------------------------------------------------------------------------


def check_rows(database: Database, topic_partition: TopicPartition) -> list[DataFault]:
    """Inconsistencies among a partition's rows."""

    def look() -> list[DataFault]:
        with database.read() as tx:
            try:
                row = catalog_partitions.read(tx, topic_partition)
            except UnknownPartition:
                return []  # deleted since
            chain = check_chain(_all_extents(tx, topic_partition), row.log_start, row.end_offset)
            aborted = transactions.aborted(tx, topic_partition, row.log_start, row.end_offset)
            return [
                *chain,
                *check_aborted(aborted, row.end_offset),
                *_check_open(tx, topic_partition),
                *_check_bytes(tx, topic_partition),
            ]

    return seen_again(look, READ_ATTEMPTS_MAX)


def _check_open(tx: CatalogTransaction, topic_partition: TopicPartition) -> Iterator[DataFault]:
    for each in audit.open_transactions(tx, topic_partition):
        if not 0 <= each.first_offset < each.end_offset:
            reason = f"producer {each.producer_id} has a transaction open outside the log"
            yield DataFault(FaultKind.INCONSISTENT, reason, each.first_offset, each.end_offset)


def _check_bytes(tx: CatalogTransaction, topic_partition: TopicPartition) -> Iterator[DataFault]:
    recorded, actual = audit.stored_bytes(tx, topic_partition)
    if recorded != actual:
        yield DataFault(
            FaultKind.INCONSISTENT, f"the partition counts {recorded} bytes, its extents {actual}"
        )


def _all_extents(tx: CatalogTransaction, topic_partition: TopicPartition) -> Iterator[Extent]:
    start = 0
    while rows := catalog_extents.facts(tx, topic_partition, start, EXTENTS_PER_PAGE):
        yield from rows
        start = rows[-1].base_offset + 1
        if len(rows) < EXTENTS_PER_PAGE:
            return


def plan(database: Database, place: Place, topic_partition: TopicPartition) -> Iterator[VerifyItem]:
    """A partition's extents in items of similar size."""
    start = size = count = 0
    with database.read() as tx:
        for extent in _all_extents(tx, topic_partition):
            if count and size + extent.length > ITEM_BYTES_MAX:
                yield VerifyItem(place, topic_partition, start, extent.base_offset, count, size)
                start, size, count = extent.base_offset, 0, 0
            size, count = size + extent.length, count + 1
    if count:
        yield VerifyItem(place, topic_partition, start, catalog_extents.BASE_OFFSET_MAX, count, size)


# -- bytes, in tasks ------------------------------------------------------------------------------------------


def work(item: VerifyItem) -> VerifyResult:
    """Look up the extents page by page and check their bytes."""
    catalog, objects = database(item.place), store(item.place)
    found: list[DataFault] = []
    extents = records = size = 0
    with catalog.read() as tx:
        aborted = transactions.aborted(tx, item.topic_partition, item.start, item.end)
    start, last = item.start, None
    while rows := _page(catalog, item, start, last):
        for extent in rows:
            findings = _check_twice(catalog, objects, extent, aborted)
            if findings is None:
                break  # replaced since: look up the rest again
            found.extend(findings)
            if extent.base_offset >= start:
                extents, records, size = extents + 1, records + extent.records, size + extent.length
            start, last = max(start, extent.base_offset + 1), extent
    return VerifyResult(extents, records, size, tuple(found))


def _page(catalog: Database, item: VerifyItem, start: int, last: Extent | None) -> list[Extent]:
    """Extents with their inline bytes, from base offset `start` on. The extent that contains `start` comes
    first, unless it is the last one checked. If it comes first, it was merged since, from extents already
    checked and others."""
    with catalog.read() as tx:
        rows = catalog_extents.find(
            tx, item.topic_partition, start, bytes_max=2**62, extents_max=EXTENTS_PER_READ + 1
        )
    return [
        extent
        for extent in rows
        if extent.base_offset < item.end and not (last is not None and same_extent(extent, last))
    ]


def _check_twice(
    catalog: Database, objects: ObjectStore, extent: Extent, aborted: Sequence[Aborted]
) -> list[DataFault] | None:
    """None if the finding occurred because the extent was replaced."""
    found = _check(objects, extent, aborted)
    if not found:
        return []
    with catalog.read() as tx:
        now = catalog_extents.facts(tx, extent.topic_partition, extent.base_offset, 1)
    return found if now and same_extent(now[0], extent) else None


def _check(objects: ObjectStore, extent: Extent, aborted: Sequence[Aborted]) -> list[DataFault]:
    key = extent.key
    if key is None and extent.inline is None:
        return [_finding(extent, FaultKind.LOST, "neither an object nor inline bytes are known")]
    if key is None:
        data = memoryview(extent.inline or b"")
        found = list(check_batches(extent, data))
    else:
        try:
            found, data = _check_object(objects, extent, key)
        except ObjectMissing:
            return [_finding(extent, FaultKind.LOST, "the object is not in the store")]
        except CorruptObject as error:
            return [
                _finding(extent, FaultKind.DAMAGED, f"the object is too short: {error.facts.get('reason')}")
            ]
    ends_here = [each for each in aborted if extent.base_offset <= each.last_offset < extent.end_offset]
    if ends_here and not found:
        found.extend(check_markers(extent, _stamped(extent, data), ends_here))
    return found


def _check_object(objects: ObjectStore, extent: Extent, key: str) -> tuple[list[DataFault], memoryview]:
    if key.startswith(SEGMENTS):
        whole = objects.read(key, 0, objects.size(key))
        return check_segment_object(extent, whole), whole[extent.position : extent.position + extent.length]
    framed = objects.read(key, extent.position - FRAME_BYTES, FRAME_BYTES + extent.length)
    return check_journal_extent(extent, framed), framed[FRAME_BYTES:]


def _stamped(extent: Extent, data: memoryview) -> Buffer:
    if extent.stamped:
        return data
    copy = bytearray(data)
    stamp_run(copy, extent.base_offset, extent.epoch)
    return copy


def _finding(extent: Extent, kind: FaultKind, reason: str) -> DataFault:
    return DataFault(kind, reason, extent.base_offset, extent.end_offset, extent.key or "", extent.position)


# -- objects --------------------------------------------------------------------------------------------------


def inspect_objects(catalog: Database, objects: ObjectStore) -> tuple[Report, list[DataFault]]:
    """Read the listing first and the rows second: a listed object without a row did not have one before
    either."""
    listed = [key for prefix in (JOURNALS, SEGMENTS) for key in objects.list(prefix)]
    with catalog.read() as tx:
        known = audit.objects(tx)
        living = {session for session, _, _ in writers.living(tx)}
    names = {each.key for each in known}
    unknown = [key for key in listed if key not in names]
    orphaned = [key for key in unknown if session_of(key) not in living]
    dead = [each for each in known if each.counted <= 0 and each.actual == 0]
    report = {
        "objects": len(known),
        "orphaned": len(orphaned),
        "orphaned_keys": orphaned[:KEYS_MAX],
        "orphaned_by_session": _by_session(orphaned),
        "on_their_way": len(unknown) - len(orphaned),
        "dead": len(dead),
        "dead_bytes": sum(each.bytes for each in dead),
    }
    return report, [_miscounted(each) for each in known if max(each.counted, 0) != each.actual]


def _miscounted(each: audit.ObjectCount) -> DataFault:
    reason = f"the object counts {each.counted} extents, and {each.actual} are in it"
    return DataFault(FaultKind.INCONSISTENT, reason, key=each.key)


def _by_session(keys: Sequence[str]) -> dict[str, int]:
    counts = Counter(session_of(key) or Session("") for key in keys)
    return {str(session): count for session, count in counts.most_common(KEYS_MAX)}


# -- the report -----------------------------------------------------------------------------------------------


def _state(findings: Sequence[LocatedFault]) -> Report:
    return {"state": DAMAGED if findings else OK, "findings": len(findings)}


def _findings(findings: Sequence[LocatedFault], names: dict[bytes, str]) -> dict[str, list[dict[str, Any]]]:
    shown: dict[str, list[dict[str, Any]]] = {str(kind): [] for kind in FaultKind}
    for topic_partition, finding in findings:
        if len(shown[finding.kind]) < FINDINGS_MAX:
            shown[finding.kind].append(_shown(topic_partition, finding, names))
    return shown


def _shown(
    topic_partition: TopicPartition | None, finding: DataFault, names: dict[bytes, str]
) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(finding).items() if value not in (UNKNOWN, "")}
    facts.pop("kind")
    location = (
        {}
        if topic_partition is None
        else {"topic": names[topic_partition.topic_id], "partition": topic_partition.partition}
    )
    return {**location, **facts}
