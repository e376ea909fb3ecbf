"""What nobody should send, say or start with: each is a clear error, and nothing that was there is lost."""

import asyncio
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys

import apsw
import pytest
from tests.disks import count_open_files

from millpond import Broker, MillpondError, Record, Settings, TopicPartition
from millpond.model.errors import (
    CorruptBatch,
    CorruptCatalog,
    DataDirectoryLocked,
    DataDirectoryUnusable,
    InvalidInput,
    InvalidPartitionCount,
    InvalidRecord,
    InvalidSettings,
    InvalidTimestamp,
    InvalidTopicName,
    NewerSchema,
    RecordTooLarge,
    UnknownPartition,
)
from millpond.records import Codec, build_batch, crc32c
from millpond.records.batch import HEADER_SIZE
from millpond.settings import load
from millpond.testing import running_broker

MILLPOND = [sys.executable, "-m", "millpond"]
CRC_FIELD, CRC_START, COUNT_FIELD, LAST_DELTA_FIELD = 17, 21, 57, 23
GOOD = [Record(b"value", key=b"key")]


def sealed(batch):
    """Give a changed batch a checksum that fits: only its contents are wrong then."""
    struct.pack_into(">I", batch, CRC_FIELD, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def good(**options):
    return build_batch(GOOD, now_ms=1, **options)


def with_field(position, kind, value):
    batch = bytearray(good())
    struct.pack_into(kind, batch, position, value)
    return sealed(batch)


BAD_BATCHES = {
    "nothing": (b"", InvalidRecord),
    "too short": (good()[:HEADER_SIZE], CorruptBatch),
    "one byte short": (good()[:-1], CorruptBatch),
    "a byte too many": (good() + b"\0", CorruptBatch),
    "half a second batch": (good() + good()[:30], CorruptBatch),
    "a flipped bit": (good()[:-1] + bytes([good()[-1] ^ 1]), CorruptBatch),
    "old magic": (with_field(16, ">b", 1), CorruptBatch),
    "negative length": (with_field(8, ">i", -1), CorruptBatch),
    "length past the end": (with_field(8, ">i", 2**31 - 1), CorruptBatch),
    "no records": (with_field(COUNT_FIELD, ">i", 0), InvalidRecord),
    "negative count": (with_field(COUNT_FIELD, ">i", -5), InvalidRecord),
    "more records than offsets": (with_field(COUNT_FIELD, ">i", 7), InvalidRecord),
    "an unknown codec": (with_field(CRC_START, ">h", 7), InvalidInput),
    "a control batch": (with_field(CRC_START, ">h", 0x20), InvalidRecord),
    "transactional without a producer": (with_field(CRC_START, ">h", 0x10), InvalidRecord),
    "from the far future": (build_batch([Record(b"x", timestamp=2**62)]), InvalidTimestamp),
    "too large": (build_batch([Record(bytes(2_000_000))], now_ms=1), RecordTooLarge),
}


async def topic_partition_of(broker, name="topic", partitions=1, **configs):
    topic = await broker.log.create_topic(
        name, partitions, {k.replace("_", "."): v for k, v in configs.items()}
    )
    return TopicPartition(topic.id, 0)


@pytest.mark.parametrize("kind", BAD_BATCHES)
async def test_a_bad_batch_is_refused_and_its_neighbours_are_not(kind):
    data, error = BAD_BATCHES[kind]
    async with running_broker() as broker:
        topic_partition = await topic_partition_of(broker)
        before, refused, after = await asyncio.gather(
            broker.log.append(topic_partition, good()),
            broker.log.append(topic_partition, data),
            broker.log.append(topic_partition, good()),
            return_exceptions=True,
        )
        assert isinstance(refused, error), refused
        assert not refused.retriable
        assert [before.base_offset, after.base_offset] == [0, 1]
        assert len(await broker.read("topic")) == 2
        assert broker.log.held_bytes == 0


async def test_a_count_that_claims_a_billion_offsets_takes_none():
    batch = bytearray(good())
    struct.pack_into(">i", batch, COUNT_FIELD, 10**9)
    struct.pack_into(">i", batch, LAST_DELTA_FIELD, 10**9 - 1)
    async with running_broker() as broker:
        topic_partition = await topic_partition_of(broker)
        with pytest.raises(InvalidRecord, match="cannot fit"):
            await broker.log.append(topic_partition, sealed(batch))
        assert (await broker.log.append(topic_partition, good())).base_offset == 0


async def test_random_damage_is_refused_or_stored_whole(figures):
    """Two thousand batches with random bytes changed: none may be taken unless its checksum still fits."""
    rng = random.Random(11)
    original = build_batch([Record(b"value %d" % n, key=b"k") for n in range(5)], now_ms=1)
    taken = refused = 0
    async with running_broker() as broker:
        topic_partition = await topic_partition_of(broker)
        for _ in range(2_000):
            batch = bytearray(original)
            for _ in range(rng.randint(1, 4)):
                batch[rng.randrange(len(batch))] ^= 1 << rng.randrange(8)
            if rng.random() < 0.2:
                del batch[rng.randrange(len(batch)) :]
            try:
                await broker.log.append(topic_partition, bytes(batch))
                taken += 1
                assert batch[CRC_START:] == original[CRC_START:], (
                    "changed bytes under the checksum were taken"
                )
            except InvalidInput:
                refused += 1
        assert len(await broker.read("topic")) == taken * 5
    figures.append(f"damaged batches: {refused} refused, {taken} with damage outside the checksum stored")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_decompression_bomb_costs_no_more_than_the_limit(codec):
    """Only a compacted topic makes the engine look inside. The bomb is 160 MiB of noughts."""
    bomb = build_batch([Record(bytes(160 << 20), key=b"k")], compression=codec, now_ms=1)
    async with running_broker(max_message_bytes=200 << 20) as broker:
        topic_partition = await topic_partition_of(broker, cleanup_policy="compact")
        with pytest.raises(RecordTooLarge, match="67108864 bytes when decompressed"):
            await broker.log.append(topic_partition, bomb)
        assert (await broker.log.append(topic_partition, good())).base_offset == 0


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_compressed_garbage_is_refused_where_the_engine_looks_inside(codec):
    batch = bytearray(build_batch(GOOD * 50, compression=codec, now_ms=1))
    batch[HEADER_SIZE + 12 : HEADER_SIZE + 30] = bytes(18)
    async with running_broker() as broker:
        topic_partition = await topic_partition_of(broker, cleanup_policy="compact")
        with pytest.raises(InvalidInput):
            await broker.log.append(topic_partition, sealed(batch))
        with pytest.raises(InvalidRecord, match="without a key"):
            await broker.log.append(topic_partition, build_batch([Record(b"x")], now_ms=1))
        assert (await broker.log.append(topic_partition, good())).base_offset == 0


@pytest.mark.parametrize(
    "name", ["", "../../etc/passwd", "a\x00", "\ud800", "x" * 10_000, "a;DROP TABLE topics", "%s"]
)
async def test_hostile_topic_names_are_refused(tmp_path, name):
    async with running_broker(tmp_path) as broker:
        await broker.produce("topic", b"x")
        with pytest.raises(InvalidTopicName):
            await broker.produce(name, b"x")
        assert len(await broker.read("topic")) == 1


async def test_partitions_that_are_not_there_are_refused():
    async with running_broker() as broker:
        await broker.produce("topic", b"x")
        for number in (-1, 1, 2**31, 10**30):
            with pytest.raises(UnknownPartition):
                await broker.produce("topic", b"x", partition=number)
        for count in (0, -1, 10_001, 10**30):
            with pytest.raises(InvalidPartitionCount):
                await broker.log.create_topic("other", count)


# -- starting on what cannot be used -------------------------------------------------------------------------------


def run(*arguments, timeout=60, **environment):
    return subprocess.run(
        [*MILLPOND, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, **environment},
    )


def refused_with(done, sentence, code=1):
    assert done.returncode == code, done
    assert done.stderr.startswith("millpond: ")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_second_broker_on_a_directory_says_so_and_leaves_the_first_alone(tmp_path):
    async with running_broker(tmp_path) as broker:
        await broker.produce("topic", b"before")
        refused_with(run("serve", "--data-dir", str(tmp_path)), f"Another broker is running on {tmp_path}")
        with pytest.raises(DataDirectoryLocked):
            await Broker(Settings(data_dir=tmp_path)).start()
        assert (await broker.produce("topic", b"after")).base_offset == 1


async def test_a_directory_that_cannot_be_written_is_named(tmp_path, small_disk_of):
    disk = small_disk_of(4_000_000)
    async with running_broker(disk / "data") as broker:
        await broker.produce("topic", b"x")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
    for place in (disk / "data", disk / "new"):
        refused_with(
            run("serve", "--data-dir", str(place)), f"The data directory {place} cannot be used: Read-only"
        )
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True, capture_output=True)
    async with running_broker(disk / "data") as broker:
        assert len(await broker.read("topic")) == 1


async def test_a_file_in_the_place_of_the_directory_is_named(tmp_path):
    (tmp_path / "file").write_bytes(b"precious")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirectoryUnusable, match=str(place)):
            await Broker(Settings(data_dir=place)).start()
    assert (tmp_path / "file").read_bytes() == b"precious"


async def test_a_newer_schema_is_refused_and_nothing_is_changed(tmp_path):
    async with running_broker(tmp_path) as broker:
        await broker.produce("topic", b"x")
    connection = apsw.Connection(str(tmp_path / "catalog.db"))
    connection.execute("UPDATE meta SET value = '99' WHERE name = 'min_code_version'")
    before = connection.execute("SELECT * FROM meta ORDER BY name").fetchall()
    connection.close()
    content = (tmp_path / "catalog.db").read_bytes()
    open_files = count_open_files(tmp_path)
    with pytest.raises(NewerSchema, match="needs code version 99 or newer"):
        await Broker(Settings(data_dir=tmp_path)).start()
    assert count_open_files(tmp_path) == open_files, "a start in vain leaves nothing open"
    refused_with(run("serve", "--data-dir", str(tmp_path)), "Upgrade millpond")
    assert (tmp_path / "catalog.db").read_bytes() == content
    connection = apsw.Connection(str(tmp_path / "catalog.db"))
    assert connection.execute("SELECT * FROM meta ORDER BY name").fetchall() == before
    connection.execute("UPDATE meta SET value = '1' WHERE name = 'min_code_version'")
    connection.close()
    async with running_broker(tmp_path) as broker:
        assert len(await broker.read("topic")) == 1


async def test_a_catalog_that_is_none_is_refused_and_left_alone(tmp_path):
    (tmp_path / "catalog.db").write_bytes(b"not a database" * 500)
    with pytest.raises(CorruptCatalog):
        await Broker(Settings(data_dir=tmp_path)).start()
    refused_with(run("serve", "--data-dir", str(tmp_path)), "The catalog is damaged")
    assert (tmp_path / "catalog.db").read_bytes() == b"not a database" * 500


BAD_SETTINGS = {
    "retention": ("soon", "write a duration"),
    "flush_bytes": ("-1", "write a size"),
    "uploads_max": ("0", "from 1 on"),
    "auto_create_topics": ("maybe", "write true or false"),
    "default_partitions": ("many", "whole number"),
    "no_such_thing": ("1", "no such setting"),
    "catalog": ("mysql://db", "neither memory:// nor sqlite"),
    "storage": ("ftp://host/dir", "starts with none of"),
    "log_level": ("banana", "log_level"),
    "log_format": ("xml", "write text or json"),
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_a_setting_that_cannot_be_used_is_named(tmp_path, name):
    value, sentence = BAD_SETTINGS[name]
    done = run("serve", "--data-dir", str(tmp_path / "data"), "--set", f"{name}={value}")
    refused_with(done, sentence, code=2)
    assert not (tmp_path / "data").exists(), "nothing is left behind"
    assert name in done.stderr
    assert value in done.stderr


def test_a_setting_in_the_environment_or_a_file_is_checked_too(tmp_path):
    done = run("serve", MILLPOND_RETENTION="soon", MILLPOND_DATA_DIR=str(tmp_path / "d"))
    refused_with(done, "retention", code=2)
    (tmp_path / "bad.toml").write_text("retention = ")
    refused_with(run("serve", "--config", str(tmp_path / "bad.toml")), "not TOML", code=2)
    refused_with(run("serve", "--config", str(tmp_path / "none.toml")), "No such file", code=2)
    with pytest.raises(InvalidSettings, match="lease"):
        load({"lease": "x"}, {})


async def test_a_damaged_object_is_an_error_for_its_own_range_only(tmp_path):
    async with running_broker(tmp_path, inline_bytes_max=0) as broker:
        for number in range(5):
            await broker.produce("topic", b"%d" % number * 100)
        await broker.produce("other", b"fine")
    [journal] = (tmp_path / "objects" / "journal").rglob("00000000*")
    content = bytearray(journal.read_bytes())
    content[content.index(b"2" * 100) + 50] ^= 1
    journal.write_bytes(content)
    async with running_broker(tmp_path) as broker:
        with pytest.raises(MillpondError, match="is damaged at byte"):
            await broker.read("topic", 2)
        assert [record.value for record in await broker.read("topic", 3)] == [b"3" * 100, b"4" * 100]
        assert [record.value for record in await broker.read("other")] == [b"fine"]
        assert (await broker.produce("topic", b"next")).base_offset == 5


def test_sigterm_drains_and_exits_with_nought(tmp_path):
    for number in (signal.SIGTERM, signal.SIGINT):
        command = [*MILLPOND, "serve", "--json", "--data-dir", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert json.loads(child.stdout.readline())["data"] == str(tmp_path)
            child.send_signal(number)
            _, errors = child.communicate(timeout=60)
        assert (child.returncode, errors) == (0, b"")


async def test_stopping_answers_what_was_taken_and_refuses_what_comes_later(tmp_path):
    broker = Broker(Settings(data_dir=tmp_path), maintain=False)
    await broker.start()
    await broker.log.create_topic("topic")
    taken = [asyncio.create_task(broker.produce("topic", bytes(5_000))) for _ in range(50)]
    await asyncio.sleep(0)
    await asyncio.gather(broker.stop(), *taken)
    assert sorted(task.result().base_offset for task in taken) == list(range(50))
    with pytest.raises(MillpondError) as refused:
        await broker.produce("topic", b"late")
    assert refused.value.retriable
    async with running_broker(tmp_path) as broker:
        records = []
        while more := await broker.read("topic", len(records)):
            records += more
        assert len(records) == 50
    shutil.rmtree(tmp_path)
