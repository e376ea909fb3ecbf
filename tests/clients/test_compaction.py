"""Compacted topics: a broker compacts them while real clients write and read, and any offset can be read from."""

import time
import uuid
from contextlib import ExitStack

import pytest
from tests.clients.conftest import Setting
from tests.clients.patience import POLL_SECONDS, SECONDS_MAX
from tests.clients.process import BrokerProcess

POLICY = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "delete_retention_ms": "1"}
CODECS = ("none", "gzip", "lz4", "zstd")


@pytest.fixture(scope="module")
def compacting_server(tmp_path_factory):
    """Compacts ten times a second, and reads everything back from the store."""
    broker = BrokerProcess(
        tmp_path_factory.mktemp("compacting"),
        compaction_every="100ms",
        tail_bytes_max="0",
        cache_bytes_max="0",
        garbage_grace="100ms",
    )
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def compacting(compacting_server, client):
    with ExitStack() as stack:
        yield Setting(compacting_server, client, stack)


def read_from(setting, reader, place, offset, count):
    reader.seek(place, offset)
    return [(each.offset, each.key, each.value) for each in setting.take(reader, count)]


def wait_until_compacted(setting, topic, expected):
    """Until a reader from the start is given just this."""
    give_up = time.monotonic() + SECONDS_MAX
    while time.monotonic() < give_up:
        found = [(each.offset, each.key, each.value) for each in setting.read(topic, len(expected))]
        if found == expected:
            return
        time.sleep(0.1)
    raise AssertionError(f"{found} instead of {expected}")


def test_what_is_left_is_read_from_every_offset(compacting):
    topic = compacting.topic(**POLICY)
    producers = [compacting.producer(codec=codec) for codec in CODECS]
    last = {}
    for number in range(32):
        producer = producers[number // 8]
        key = b"k%d" % (number * 7 % 5)
        producer.send(topic, b"%d" % number, key=key)
        if number % 3 == 0 or number % 8 == 7:
            producer.flush()
        last[key] = (number, key, b"%d" % number)
    expected = sorted(last.values())
    wait_until_compacted(compacting, topic, expected)
    reader = compacting.reader(topic)
    for offset in range(32):
        wanted = [each for each in expected if each[0] >= offset]
        assert read_from(compacting, reader, (topic, 0), offset, len(wanted)) == wanted


def test_a_log_whose_last_records_are_gone_is_read_to_its_end(compacting):
    """Batches without records lead a reader past the gap: what comes next is what it is given."""
    topic = compacting.topic(**POLICY)
    producer = compacting.producer()
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"b", None), (b"a", None), (b"c", None)):
        producer.send(topic, value, key=key)
        producer.flush()
    producer.send(topic, b"1", key=b"d")
    producer.flush()
    wait_until_compacted(compacting, topic, [(5, b"d", b"1")])
    producer.send(topic, None, key=b"d")
    producer.flush()
    give_up = time.monotonic() + SECONDS_MAX
    while compacting.reader(topic).poll(POLL_SECONDS) and time.monotonic() < give_up:
        time.sleep(0.1)
    readers = [compacting.reader(topic) for _ in range(7)]
    for offset, reader in enumerate(readers):
        reader.seek((topic, 0), offset)
        assert reader.poll(0.2) == []
    producer.send(topic, b"new", key=b"e")
    producer.flush()
    for reader in readers:
        assert [each.value for each in compacting.take(reader, 1)] == [b"new"]


def test_aborted_records_go_and_committed_ones_stay(compacting):
    topic = compacting.topic(**POLICY)
    producer = compacting.producer(transactional_id=f"x-{uuid.uuid4().hex[:12]}")
    for number, ending in enumerate((producer.commit, producer.abort, producer.commit, producer.abort)):
        producer.begin()
        for key in (b"a", b"b%d" % number):
            producer.send(topic, b"%d" % number, key=key)
        producer.flush()
        ending()
    expected = [(1, b"b0", b"0"), (6, b"a", b"2"), (7, b"b2", b"2")]
    wait_until_compacted(compacting, topic, expected)
    reader = compacting.reader(topic, read_committed=True)
    for offset in range(12):
        wanted = [each for each in expected if each[0] >= offset]
        assert read_from(compacting, reader, (topic, 0), offset, len(wanted)) == wanted
    after = compacting.producer()
    after.send(topic, b"9", key=b"z")
    after.flush()
    assert [each.value for each in compacting.take(reader, 1)] == [b"9"]
