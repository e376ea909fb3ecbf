"""The compiled key map does what the plain one does: on whole logs, on every codec, when it is full, on damage."""

import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batches import batch_with_header
from tests.unit.rewriting.paper import PLENTY, Paper

from millpond.model.errors import InvalidInput
from millpond.records import Codec, Record, build_batch, walk
from millpond.rewriting.compaction import BatchFilter
from millpond.rewriting.compaction_keys import PlainKeys
from millpond.spark.kernels import compaction
from millpond.spark.kernels.compaction import CompiledKeys

KEY = st.one_of(st.none(), st.binary(max_size=20), st.sampled_from([b"", b"a", b"b", b"a" * 8, b"a" * 9]))
VALUE = st.one_of(st.none(), st.binary(max_size=5))
BATCH = st.tuples(
    st.lists(st.tuples(KEY, VALUE), min_size=1, max_size=8),
    st.sampled_from(list(Codec)),
    st.sampled_from([None, None, 1, 2]),
    st.booleans(),
)


def batches_of(*lists, codec=Codec.NONE):
    """Placed batches of (key, value) pairs with consecutive offsets."""
    placed, offset = [], 0
    for pairs in lists:
        records = [Record(value, key, timestamp=1_000 + n) for n, (key, value) in enumerate(pairs)]
        data = build_batch(records, base_offset=offset, compression=codec)
        [(position, header)] = walk(data)
        placed.append((data, position, header))
        offset += len(pairs)
    return placed


def plain_values(filtered):
    return [each._replace(records=None if each.records is None else bytes(each.records)) for each in filtered]


@settings(max_examples=150, deadline=None)
@given(st.lists(BATCH, max_size=12), st.integers(0, 40), st.integers(0, 40), st.integers(1, 2))
def test_a_log_is_compacted_to_the_same_bytes_with_either_map(appends, start, tombstones, producer):
    paper = Paper()
    for pairs, codec, who, joined in appends:
        paper.append(*pairs, codec=codec, producer=who, joined=joined)
    for each in (producer, 3 - producer):
        paper.finish(each, commit=each == producer)
    paper.delete_below(start)
    paper.point(min(tombstones, paper.end), age_ms=10**12)
    plain, compiled = paper.copy(), paper.copy()
    for one, keys in ((plain, PlainKeys(PLENTY)), (compiled, CompiledKeys(PLENTY))):
        one.compact(keys=keys)
    assert [data for _, data in plain.extents] == [data for _, data in compiled.extents]
    assert plain.points == compiled.points


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(st.tuples(KEY, VALUE), min_size=1, max_size=8), min_size=1, max_size=8),
    st.sampled_from(list(Codec)),
    *[st.integers(0, 40)] * 5,
)
def test_learning_and_sifting_agree_with_the_plain_map(
    lists, codec, start, end, log_start, clean, tombstones
):
    batches = batches_of(*lists, codec=codec)
    plain, compiled = PlainKeys(PLENTY), CompiledKeys(PLENTY)
    assert plain.collect_keys(batches, start, end) == compiled.collect_keys(batches, start, end) == end
    assert len(plain) == len(compiled)
    batch_filter = BatchFilter(log_start, clean, tombstones)
    assert plain_values(compiled.filter_batches(batches, batch_filter)) == plain_values(
        plain.filter_batches(batches, batch_filter)
    )


def test_records_without_a_time_count_with_that_of_their_batch():
    """The header tells when they were appended; the plain map takes it from there, too."""
    lists = [[Record(b"1", b"a", timestamp=7), Record(b"2", b"b")], [Record(b"3", b"a", timestamp=9)]]
    batches = []
    for records in lists:
        data = batch_with_header(records, newest=5_000)
        batches.append((data, 0, next(walk(data))[1]))
    maps = PlainKeys(PLENTY), CompiledKeys(PLENTY)
    for keys in maps:
        keys.collect_keys(batches, 0, 2)
    plain, compiled = (plain_values(keys.filter_batches(batches, BatchFilter(0, 2, 0))) for keys in maps)
    assert plain == compiled
    assert [each.newest_timestamp for each in plain] == [5_000, 9]


def test_many_keys_make_it_grow_and_none_is_lost():
    choice = random.Random(1)
    keys = [choice.randbytes(choice.randint(0, 30)) for _ in range(20_000)]
    batches = batches_of(*([(key, b"v") for key in keys[n : n + 500]] for n in range(0, 20_000, 500)))
    plain, compiled = PlainKeys(PLENTY), CompiledKeys(PLENTY)
    for batch in batches:
        assert plain.collect_keys([batch], 0, 20_000) == compiled.collect_keys([batch], 0, 20_000) == 20_000
    assert len(plain) == len(compiled) > compaction.SLOTS_MIN
    batch_filter = BatchFilter(0, 20_000, 0)
    assert plain_values(compiled.filter_batches(batches, batch_filter)) == plain_values(
        plain.filter_batches(batches, batch_filter)
    )


@pytest.mark.parametrize("bytes_max", [0, 60_000, 200_000])
def test_it_stops_at_its_bound_and_says_where(bytes_max):
    keys = CompiledKeys(bytes_max)
    batches = batches_of([(b"%08d" % n, b"v") for n in range(10_000)])
    full_at = keys.collect_keys(batches, 0, 10_000)
    assert full_at == len(keys)
    assert 0 < full_at < 10_000
    held = keys._table.nbytes + keys._arena.nbytes
    assert held <= max(bytes_max, compaction.SLOTS_MIN * compaction.SLOT_BYTES + compaction.ARENA_BYTES_MIN)
    kept = keys.filter_batches(batches, BatchFilter(0, full_at, 0))[0]
    assert kept.kept == 10_000


def test_a_first_key_has_room_even_if_it_is_larger_than_the_bound():
    keys = CompiledKeys(1)
    batches = batches_of([(b"k" * 100_000, b"v"), (b"l" * 100_000, b"v")])
    assert keys.collect_keys(batches, 0, 2) == 1
    assert len(keys) == 1


def test_keys_that_share_a_hash_are_told_apart():
    """A chain of keys under one hash, as if all had it: the bytes decide."""
    names = [b"7", b"49", b"50", b"51"]
    arena = np.frombuffer(b"".join(names), dtype=np.uint8)
    table, places = compaction._new_table(8), [0, 1, 3, 5]
    one_hash = np.int64(6)  # the chain goes on at the start of the table
    for slot, place, name in zip([6, 7, 0, 1], places, names, strict=True):
        table[slot] = (one_hash, place, len(name), 0)
    data = np.frombuffer(b"50-52", dtype=np.uint8)
    assert compaction._slot(data, 0, 2, one_hash, table, arena) == 0
    assert compaction._slot(data, 3, 2, one_hash, table, arena) == 2
    assert table[2, 1] == compaction.FREE


def test_damage_is_an_error_and_nothing_is_learned():
    good, bad = batches_of([(b"a", b"1")], [(b"b", b"2")])
    data = bytearray(bad[0])
    data[-3] = 0x7F
    keys = CompiledKeys(PLENTY)
    with pytest.raises(InvalidInput):
        keys.collect_keys([good, (bytes(data), *bad[1:])], 0, 2)
    assert len(keys) == 0


def test_a_batch_that_expands_beyond_measure_stays_as_it_is():
    paper = Paper()
    paper.append((b"a", b"1")).append((b"a", b"\0" * 100_000), codec=Codec.ZSTD).append((b"a", b"3"))
    done = paper.compact(keys=CompiledKeys(PLENTY, decompressed_bytes_max=10_000))
    assert done.unreadable_batches == 1
    assert sorted(paper.stored()) == [1, 2]


def test_it_is_quick(figures):
    """Measured, not judged: the machine is shared."""
    records = 200_000
    lists = [
        [(b"key-%06d" % (n * 7919 % 50_000), b"v" * 80) for n in range(at, at + 200)]
        for at in range(0, records, 200)
    ]
    batches = batches_of(*lists)
    warm = CompiledKeys(PLENTY)
    warm.collect_keys(batches[:2], 0, 400)
    warm.filter_batches(batches[:2], BatchFilter(0, 400, 0))
    keys, started = CompiledKeys(PLENTY), time.perf_counter()
    keys.collect_keys(batches, 0, records)
    filtered = keys.filter_batches(batches, BatchFilter(0, records, 0))
    took = time.perf_counter() - started
    assert sum(each.kept for each in filtered) == 50_000
    figures.append(f"compaction, compiled key map: {records / took / 1e6:.1f} M records/s learned and sifted")
