"""Rows become exactly the batches that Kafka's own producer would make of them, in its partitions, in their order."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.sink.rows import HEADERS, batch

from millpond.catalog import topics as catalog_topics
from millpond.catalog.sqlite import SqliteMemoryDatabase
from millpond.model.errors import (
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    RecordTooLarge,
    UnknownPartition,
    UnknownTopic,
)
from millpond.model.partitioning import murmur2, partition_of
from millpond.records import Codec, Record, build_batch, check_crc, iter_records, read_header, validate, walk
from millpond.segments.frame import walk_journal
from millpond.segments.index import unpack_index
from millpond.spark.kernels import encode as kernel
from millpond.spark.sink.options import TopicCreation
from millpond.spark.sink.packing import BATCH_BYTES, Packer
from millpond.spark.sink.topics import TopicNumbers

NOW = 1_700_000_000_000
PLENTY = 1 << 30
NO_CREATION = TopicCreation(creates=False)


@pytest.fixture(scope="module")
def database():
    made = SqliteMemoryDatabase()
    made.migrate()
    made_topics = {
        "one": (1, {}),
        "five": (5, {}),
        "compacted": (3, {"cleanup.policy": "compact"}),
        "small": (2, {"max.message.bytes": "1000"}),
        "zipped": (2, {"compression.type": "zstd"}),
        "plain": (1, {"compression.type": "uncompressed"}),
        "appended": (1, {"message.timestamp.type": "LogAppendTime"}),
        "near": (1, {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "2000"}),
    }
    with made.write() as tx:
        for name, (partitions, config) in made_topics.items():
            catalog_topics.create(tx, name, partitions, config, now_ms=1)
    yield made
    made.close()


def pack(database, rows, topic=None, codec=Codec.NONE, round_robin=0):
    """(topic, partition) -> records, from the bytes alone; every batch is checked as a broker checks it."""
    table = pa.Table.from_batches([rows] if isinstance(rows, pa.RecordBatch) else rows)
    topics = TopicNumbers(database, NO_CREATION)
    packed = Packer(topics, codec=codec, topic=topic, round_robin=round_robin).pack(table, now_ms=NOW)
    names = {known.id: known.name for known in topics.known}
    data = b"".join(packed.parts)
    found = {}
    for (position, frame), share in zip(walk_journal(data), packed.shares, strict=True):
        payload = data[position : position + frame.length]
        assert (share.topic_partition, share.position, share.length) == (
            frame.topic_partition,
            position,
            frame.length,
        )
        headers = [header for _, header in validate_unless_appended(payload)]
        records = list(iter_records(payload, decompressed_bytes_max=PLENTY))
        assert frame.batches == len(headers)
        assert frame.records == share.records == sum(header.record_count for header in headers)
        times = [record.timestamp for record in records]
        assert (share.min_timestamp, share.max_timestamp) == (min(times), max(times))
        found[names[frame.topic_partition.topic_id], frame.topic_partition.partition] = records
    return found


def validate_unless_appended(payload):
    """A broker takes no batch with its own time in it, so only the walk is checked then."""
    batches = list(walk(payload))
    if any(header.has_append_time for _, header in batches):
        for position, header in batches:
            check_crc(payload, position, header)
        return batches
    return validate(payload, max_batch_bytes=PLENTY)


def plain(records):
    """Without offsets, which a batch counts from nought."""
    return [(record.key, record.value, record.headers, record.timestamp) for record in records]


@given(st.binary(max_size=40))
@settings(max_examples=300, deadline=None)
def test_the_hash_is_the_models(data):
    array = np.frombuffer(b"xx" + data + b"yy", dtype=np.uint8)
    assert int(kernel.murmur2(array, 2, 2 + len(data))) == murmur2(data)


FIELDS = st.none() | st.binary(max_size=200)
ROWS = st.lists(
    st.tuples(
        FIELDS,
        FIELDS,
        st.none() | st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=3),
        st.none() | st.integers(0, NOW + 3_600_000),
    ),
    min_size=1,
    max_size=60,
)


@given(ROWS, st.integers(1, 4))
@settings(max_examples=100, deadline=None)
def test_every_row_is_there_once_in_its_order_and_its_partition(database, rows, chunks):
    keys, values, headers, times = zip(*rows, strict=True)
    whole = batch(
        key=list(keys),
        value=list(values),
        headers=[None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers],
        timestamp=[None if each is None else each * 1000 + 999 for each in times],
    )
    size = -(-len(rows) // chunks)
    slices = [whole.slice(start, size) for start in range(0, len(rows), size)]
    expected, round_robin = {}, 2
    for key, value, header, time in rows:
        if key is None:
            partition, round_robin = round_robin % 5, round_robin + 1
        else:
            partition = partition_of(key, 5)
        record = (key, value, tuple(header or ()), NOW if time is None else time)
        expected.setdefault(("five", partition), []).append(record)
    found = pack(database, slices, "five", round_robin=2)
    assert {topic_partition: plain(records) for topic_partition, records in found.items()} == expected


def test_a_batch_is_byte_for_byte_what_the_builder_makes(database):
    records = [
        Record(b"v%d" % n, None if n % 3 else b"k%d" % n, (("h", b"x"), ("é", None)), NOW + n % 7)
        for n in range(300)
    ]
    rows = batch(
        key=[r.key for r in records],
        value=[r.value for r in records],
        headers=[[{"key": k, "value": v} for k, v in r.headers] for r in records],
        timestamp=[r.timestamp * 1000 for r in records],
    )
    table = pa.Table.from_batches([rows])
    packed = Packer(TopicNumbers(database, NO_CREATION), codec=Codec.NONE, topic="one").pack(
        table, now_ms=NOW
    )
    assert bytes(packed.parts[1]) == build_batch(records)


def test_strings_are_their_bytes_and_large_columns_are_no_different(database):
    small = pa.record_batch({"key": pa.array(["ä", None]), "value": pa.array(["x", "y"])})
    large = pa.record_batch(
        {"key": pa.array(["ä", None], pa.large_string()), "value": pa.array(["x", "y"], pa.large_string())}
    )
    expected = [("ä".encode(), b"x"), (None, b"y")]
    for rows in (small, large):
        [records] = pack(database, rows, "one").values()
        assert [(record.key, record.value) for record in records] == expected


def test_a_partition_that_a_row_names_wins_over_its_key(database):
    rows = batch(key=[b"a", b"a", b"a"], value=[b"1", b"2", b"3"], partition=[3, None, 0])
    found = pack(database, rows, "five")
    assert [r.value for r in found["five", 3]] == [b"1"]
    assert [r.value for r in found["five", 0]] == [b"3"]
    assert [r.value for r in found["five", partition_of(b"a", 5)]] == [b"2"]


@pytest.mark.parametrize("partition", [5, -1, -2])
def test_a_partition_that_is_not_there_is_refused_by_name(database, partition):
    with pytest.raises(UnknownPartition, match=f"'five' has no partition {partition}"):
        pack(database, batch(value=[b"1"], partition=[partition]), "five")


def test_rows_without_a_key_are_dealt_evenly(database):
    found = pack(database, batch(value=[b"%d" % n for n in range(1000)]), "five", round_robin=3)
    assert [len(found["five", partition]) for partition in range(5)] == [200] * 5
    assert found["five", 3][0].value == b"0"


def test_each_row_goes_to_the_topic_it_names(database):
    rows = batch(value=[b"1", b"2", b"3", b"4"], topic=["one", "five", "one", "zipped"], key=[b"k"] * 4)
    found = pack(database, rows)
    by_topic = {topic: [record.value for record in records] for (topic, _), records in found.items()}
    assert by_topic == {"one": [b"1", b"3"], "five": [b"2"], "zipped": [b"4"]}


def test_the_option_overrides_the_column(database):
    found = pack(database, batch(value=[b"1"], topic=["five"]), "one")
    assert list(found) == [("one", 0)]


def test_a_row_without_a_topic_and_an_unknown_topic_are_refused(database):
    with pytest.raises(InvalidRequest, match="no topic"):
        pack(database, batch(value=[b"1"], topic=[None]))
    with pytest.raises(UnknownTopic, match="'nowhere'"):
        pack(database, batch(value=[b"1"], topic=["nowhere"]))


def test_batches_are_cut_and_can_be_entered(database):
    table = pa.Table.from_batches([batch(value=[b"x" * 1000] * 1000)])
    packed = Packer(TopicNumbers(database, NO_CREATION), codec=Codec.NONE, topic="one").pack(
        table, now_ms=NOW
    )
    headers = validate(packed.parts[1], max_batch_bytes=BATCH_BYTES)
    assert len(headers) == 8
    offsets = [0, *np.cumsum([header.record_count for _, header in headers])][:-1]
    index = unpack_index(packed.shares[0].sparse_index)
    assert [(entry.offset, entry.position) for entry in index] == [
        (offset, position) for offset, (position, _) in zip(offsets, headers, strict=True)
    ]


def test_a_record_larger_than_a_batch_has_one_to_itself(database):
    table = pa.Table.from_batches([batch(value=[b"a", b"x" * 500_000, b"b"])])
    packed = Packer(TopicNumbers(database, NO_CREATION), codec=Codec.NONE, topic="one").pack(
        table, now_ms=NOW
    )
    assert [header.record_count for _, header in validate(packed.parts[1], max_batch_bytes=PLENTY)] == [
        1,
        1,
        1,
    ]


def test_batches_keep_the_topics_largest_size_and_a_larger_row_is_refused_by_name(database):
    table = pa.Table.from_batches([batch(value=[b"x" * 100] * 50)])
    packed = Packer(TopicNumbers(database, NO_CREATION), codec=Codec.NONE, topic="small").pack(
        table, now_ms=NOW
    )
    for part in packed.parts[1::2]:
        validate(part, max_batch_bytes=1000)
    with pytest.raises(RecordTooLarge, match=r"topic 'small' .* 1000"):
        pack(database, batch(value=[b"x" * 1000]), "small")


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_can_be_read_back(database, codec):
    rows = batch(value=[b"%06d" % n * 20 for n in range(5000)])
    table = pa.Table.from_batches([rows])
    packed = Packer(TopicNumbers(database, NO_CREATION), codec=codec, topic="one").pack(table, now_ms=NOW)
    data = b"".join(packed.parts[1:])
    assert {header.codec for _, header in validate(data, max_batch_bytes=BATCH_BYTES)} == {codec}
    [records] = pack(database, rows, "one", codec).values()
    assert [record.value for record in records] == rows.column("value").to_pylist()


def test_a_topic_that_has_a_codec_uses_its_own(database):
    rows = batch(value=[b"x" * 1000] * 10)
    for topic, expected in (("zipped", Codec.ZSTD), ("plain", Codec.NONE), ("one", Codec.LZ4)):
        table = pa.Table.from_batches([rows])
        packed = Packer(TopicNumbers(database, NO_CREATION), codec=Codec.LZ4, topic=topic).pack(
            table, now_ms=NOW
        )
        first_payload = next(position for position, _ in walk_journal(b"".join(packed.parts)))
        assert read_header(b"".join(packed.parts), first_payload).codec is expected


def test_what_does_not_become_smaller_is_not_compressed(database):
    rows = batch(value=[random.Random(1).randbytes(900)])
    table = pa.Table.from_batches([rows])
    packed = Packer(TopicNumbers(database, NO_CREATION), codec=Codec.GZIP, topic="small").pack(
        table, now_ms=NOW
    )
    [(_, header)] = validate(b"".join(packed.parts[1:]), max_batch_bytes=1000)
    assert header.codec is Codec.NONE


def test_a_compacted_topic_takes_no_row_without_a_key(database):
    with pytest.raises(InvalidRecord, match=r"'compacted' is compacted.*no key"):
        pack(database, batch(key=[b"k", None], value=[b"1", b"2"]), "compacted")
    assert pack(database, batch(key=[b"k", b""], value=[None, b"2"]), "compacted")


def test_a_header_needs_a_key(database):
    rows = batch(value=[b"1"], headers=[[{"key": None, "value": b"x"}]])
    with pytest.raises(InvalidRecord, match=r"'one' has a header without a key"):
        pack(database, rows, "one")


def test_headers_of_a_row_that_is_null_are_not_read(database):
    """Arrow allows a null list to point at entries all the same."""
    entries = pa.array([{"key": None, "value": b"x"}] * 2, HEADERS.value_type)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2]), entries, mask=pa.array([True, True]))
    rows = pa.record_batch({"value": pa.array([b"1", b"2"]), "headers": lists.cast(HEADERS)})
    [records] = pack(database, rows, "one").values()
    assert [record.headers for record in records] == [(), ()]


def test_a_topic_with_append_time_gives_every_row_the_time_of_its_append(database):
    rows = batch(value=[b"1", b"2"], timestamp=[5_000_000, 7_000_000])
    [records] = pack(database, rows, "appended").values()
    assert [record.timestamp for record in records] == [NOW, NOW]
    table = pa.Table.from_batches([rows])
    packed = Packer(TopicNumbers(database, NO_CREATION), codec=Codec.NONE, topic="appended").pack(
        table, now_ms=NOW
    )
    [(_, header)] = validate_unless_appended(bytes(packed.parts[1]))
    assert header.has_append_time


@pytest.mark.parametrize("apart_ms", [-1001, 2001])
def test_a_time_too_far_from_now_is_refused_by_the_topics_name(database, apart_ms):
    with pytest.raises(InvalidTimestamp, match="'near'"):
        pack(database, batch(value=[b"1"], timestamp=[(NOW + apart_ms) * 1000]), "near")


@pytest.mark.parametrize("apart_ms", [-1000, 2000])
def test_a_time_just_near_enough_is_taken(database, apart_ms):
    assert pack(database, batch(value=[b"1"], timestamp=[(NOW + apart_ms) * 1000]), "near")


def test_a_time_before_1970_is_refused(database):
    with pytest.raises(InvalidRecord, match=r"'one'.*before 1970"):
        pack(database, batch(value=[b"1"], timestamp=[-1]), "one")


def test_a_slice_of_a_batch_is_just_its_rows(database):
    whole = batch(
        key=[b"k%d" % n for n in range(5)],
        value=[b"v%d" % n for n in range(5)],
        headers=[[{"key": f"h{n}", "value": b"x"}] for n in range(5)],
    )
    [records] = pack(database, whole.slice(2, 2), "one").values()
    assert plain(records) == [(b"k%d" % n, b"v%d" % n, ((f"h{n}", b"x"),), NOW) for n in (2, 3)]
