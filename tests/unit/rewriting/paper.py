"""A partition on paper: extents in memory, what a list says they must hold, and compactions of them.

The list (`entries`) is kept by the rules as a person would state them, record by record, and never looks into a batch.
"""

import itertools
from dataclasses import dataclass, field, replace

from millpond.catalog.compactions import CompactionPoint
from millpond.catalog.partitions import PartitionRow
from millpond.catalog.transactions import Aborted
from millpond.model.extents import Extent
from millpond.model.ids import Session, TopicId, TopicPartition
from millpond.model.topics import Topic
from millpond.reading.runs import Run
from millpond.reading.visible import visible
from millpond.records import (
    Codec,
    MarkerKind,
    Record,
    build_batch,
    build_control_batch,
    check_crc,
    iter_records,
    stamp,
    walk,
)
from millpond.rewriting.compaction import PartitionState, compact, plan_compaction
from millpond.rewriting.compaction_keys import PlainKeys
from millpond.rewriting.compaction_points import points_after
from millpond.segments.frame import FRAME_BYTES
from millpond.segments.segment import check_segment

WHERE = TopicPartition(TopicId(b"t" * 16), 0)
START_MS = 1_700_000_000_000
PLENTY = 1 << 24
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def config_of(**overrides):
    names = {key.replace("_", "."): str(value) for key, value in overrides.items()}
    return Topic(TopicId(b"t" * 16), "t", 1, 0, COMPACTED | names).config()


@dataclass
class Entry:
    """A record that was appended, and what has become of it."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer: int | None = None
    is_aborted: bool = False
    is_gone: bool = False
    compacted_at: int | None = None
    """When a compaction first covered it."""


@dataclass
class Paper:
    now_ms: int = START_MS
    log_start: int = 0
    end: int = 0
    extents: list = field(default_factory=list)  # (Extent, bytes)
    entries: list = field(default_factory=list)
    markers: list = field(default_factory=list)
    open: dict = field(default_factory=dict)  # producer -> first offset
    aborted: list = field(default_factory=list)
    points: tuple = ()
    attempts: object = field(default_factory=lambda: itertools.count(1))
    reads: int = 0

    # -- what producers do ------------------------------------------------------------------------------------

    def append(self, *records, producer=None, codec=Codec.NONE, joined=False, epoch=0, at=None):
        """One batch of (key, value) pairs; `joined` to the last extent, or with an extent of its own."""
        now = self.now_ms if at is None else at
        made = [Record(value, key, timestamp=now + n) for n, (key, value) in enumerate(records)]
        identity = (
            {} if producer is None else {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        )
        batch = build_batch(made, compression=codec, transactional=producer is not None, **identity)
        if producer is not None:
            self.open.setdefault(producer, self.end)
        self.entries += [Entry(self.end + n, *pair, producer) for n, pair in enumerate(records)]
        self._store(bytearray(batch), len(records), now, now + len(records) - 1, joined, epoch)
        return self

    def finish(self, producer, *, commit):
        """Ends a transaction, if it wrote anything."""
        if producer not in self.open:
            return self
        first = self.open.pop(producer)
        if not commit:
            self.aborted.append(Aborted(producer, first, self.end))
            for entry in self.entries:
                if entry.producer == producer and first <= entry.offset:
                    entry.is_aborted = True
        self.markers.append(self.end)
        kind = MarkerKind.COMMIT if commit else MarkerKind.ABORT
        marker = build_control_batch(kind, producer, 0, self.now_ms)
        self._store(bytearray(marker), 1, self.now_ms, self.now_ms, joined=False, epoch=0)
        return self

    def delete_below(self, offset):
        self.log_start = max(self.log_start, min(offset, self.stable))
        self.extents = [(e, data) for e, data in self.extents if e.end_offset > self.log_start]
        first = self.extents[0][0].base_offset if self.extents else self.end
        self.markers = [offset for offset in self.markers if offset >= first]
        self.aborted = [each for each in self.aborted if each.last_offset >= self.log_start]

    def _store(self, batch, records, oldest, newest, joined, epoch):
        stamp(batch, 0, self.end, epoch)
        end = self.end + records
        if joined and self.extents:
            extent, data = self.extents.pop()
            batch = data + batch
            oldest, newest = min(extent.min_timestamp, oldest), max(extent.max_timestamp, newest)
            records += extent.records
            base = extent.base_offset
        else:
            base = self.end
        extent = Extent(
            WHERE, base, end, epoch, 0, len(batch), records, oldest, newest, True, f"k/{base}/{end}", None
        )
        self.extents.append((extent, bytes(batch)))
        self.end = end

    # -- compaction -------------------------------------------------------------------------------------------

    @property
    def stable(self):
        return min(self.open.values(), default=self.end)

    def state(self):
        size = sum(extent.length for extent, _ in self.extents)
        row = PartitionRow(WHERE, None, 0, self.log_start, self.end, size, 0)
        facts = tuple(extent for extent, _ in self.extents)
        aborted = tuple(each for each in self.aborted if each.first_offset < self.stable)
        return PartitionState(row, facts, self.stable, aborted, self.points)

    def plan(self, *, force=False, skip_small_tail=False, **overrides):
        return plan_compaction(
            self.state(),
            config_of(**overrides),
            now_ms=self.now_ms,
            force=force,
            skip_small_tail=skip_small_tail,
        )

    def read_runs(self, topic_partition, offset, wanted):
        """As a store's reader: whole extents from the one that holds the offset on."""
        assert topic_partition == WHERE
        self.reads += 1
        runs, size = [], 0
        for extent, data in self.extents:
            if extent.end_offset > offset and (size < wanted or not runs):
                runs.append(Run(extent.base_offset, extent.end_offset, bytearray(data)))
                size += len(data)
        return runs

    def deed(self, plan, keys=None, **named):
        stored = {}
        named.setdefault("put", lambda key, parts: stored.update({key: b"".join(map(bytes, parts))}))
        done = compact(
            plan,
            self.read_runs,
            PlainKeys(PLENTY) if keys is None else keys,
            session=Session("paper"),
            attempts=self.attempts,
            **named,
        )
        return done, stored

    def compact(self, *, keys=None, force=True, chunk_bytes=1 << 20, segment_bytes_max=1 << 25, **overrides):
        """Plan and do it; returns what was done, or None."""
        plan = self.plan(force=force, **overrides)
        if plan is None:
            return None
        done, stored = self.deed(plan, keys, chunk_bytes=chunk_bytes, segment_bytes_max=segment_bytes_max)
        self._note(plan, done.clean_end)
        self.take_in(done, stored)
        return done

    def take_in(self, done, stored):
        self.points = points_after(done, self.now_ms)
        for segment in done.segments:
            topic_partition = [n for n, (extent, _) in enumerate(self.extents) if extent in segment.old]
            assert topic_partition == list(range(topic_partition[0], topic_partition[0] + len(segment.old)))
            data = stored.pop(segment.new_object.key)
            extent = check_segment(data, segment.new_object.key)
            row = segment.row
            assert (row.base_offset, row.end_offset) == (
                segment.old[0].base_offset,
                segment.old[-1].end_offset,
            )
            assert (row.length, row.records, row.epoch) == (extent.length, extent.records, extent.epoch)
            assert (row.min_timestamp, row.max_timestamp) == (extent.min_timestamp, extent.max_timestamp)
            assert len(data) == segment.new_object.bytes
            self.extents[topic_partition[0] : topic_partition[-1] + 1] = [
                (extent, data[FRAME_BYTES : FRAME_BYTES + extent.length])
            ]
        assert not stored

    def _note(self, plan, clean_end):
        """The rules, record by record. When tombstones go is left to the tests of points."""
        last = {
            entry.key: entry.offset
            for entry in self.entries
            if plan.dirty_start <= entry.offset < clean_end and not entry.is_aborted and entry.key is not None
        }
        for entry in self.entries:
            if entry.offset >= clean_end or entry.is_gone:
                continue
            if (
                entry.offset < plan.log_start
                or entry.is_aborted
                or entry.key is None
                or last.get(entry.key, -1) > entry.offset
                or (entry.value is None and entry.offset < plan.tombstones_end)
            ):
                entry.is_gone = True
            elif entry.compacted_at is None:
                entry.compacted_at = self.now_ms

    # -- what readers see -------------------------------------------------------------------------------------

    def stored(self):
        """Every data record in the bytes: {offset: (key, value)}. Checks that the bytes are whole on the way."""
        found = {}
        before = -1
        for extent, data in self.extents:
            records = 0
            for position, header in walk(data):
                check_crc(data, position, header)
                assert before < header.base_offset
                assert extent.base_offset <= header.base_offset <= header.last_offset < extent.end_offset
                before, records = header.last_offset, records + header.record_count
            assert header.next_offset == extent.end_offset
            assert (len(data), records) == (extent.length, extent.records)
            for record in iter_records(data, decompressed_bytes_max=PLENTY):
                found[record.offset] = (record.key, record.value)
        return found

    def control_offsets(self):
        return [h.base_offset for _, data in self.extents for _, h in walk(data) if h.is_control]

    def committed(self, start=0):
        """What a read_committed reader from `start` on is given: [(offset, key, value)]."""
        start = max(start, self.log_start)
        runs = [data for extent, data in self.extents if extent.end_offset > start]
        aborted = [each for each in self.aborted if each.last_offset >= start]
        return [
            (record.offset, record.key, record.value)
            for buffer, position, header in visible(runs, aborted)
            for record in iter_records(
                memoryview(buffer)[position : position + header.size], decompressed_bytes_max=PLENTY
            )
            if start <= record.offset < self.stable
        ]

    def table(self):
        """The last committed value of each key: what a topic of this kind is for."""
        last = {key: value for _, key, value in self.committed() if key is not None}
        return {key: value for key, value in last.items() if value is not None}

    def expected(self):
        """What the bytes must hold from the log start on."""
        return {
            e.offset: (e.key, e.value) for e in self.entries if not e.is_gone and e.offset >= self.log_start
        }

    def point(self, end_offset, age_ms):
        self.points = (*self.points, CompactionPoint(end_offset, self.now_ms - age_ms))

    def copy(self):
        """Another one with the same past."""
        return replace(
            self,
            extents=list(self.extents),
            entries=[replace(entry) for entry in self.entries],
            markers=list(self.markers),
            open=dict(self.open),
            aborted=list(self.aborted),
            attempts=itertools.count(1),
        )
