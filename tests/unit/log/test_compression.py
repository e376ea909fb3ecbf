"""`compression.type`: batches get the topic's codec on their way in, and nothing else about them changes."""

import asyncio

import pytest

from millpond.log import appender
from millpond.model.configs import DEFINITIONS, ConfigEffect
from millpond.model.errors import CorruptBatch, RecordTooLarge
from millpond.records import Codec, Record, iter_records, read_header, recompress, validate, walk

KINDS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
LARGE = 200_000


async def codecs(engine):
    result = await engine.fetch(0)
    return [header.codec for data in result.batches for _, header in walk(data)]


def whole(data):
    return list(iter_records(data, decompressed_bytes_max=1 << 24))


# -- the bytes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", Codec)
@pytest.mark.parametrize("before", Codec)
def test_only_the_codec_changes(make_batch, before, after):
    records = [
        Record(b"x" * 500, key=b"k", headers=(("h", b"v"),), timestamp=5, offset=70),
        Record(None, timestamp=9, offset=72),
    ]
    data = make_batch(
        *records, producer=(7, 3, 11), transactional=True, compression=before, leader_epoch=4, last_offset=75
    )
    other = recompress(data, after, decompressed_bytes_max=10_000)
    [(_, old)], [(_, new)] = walk(data), walk(other)
    assert new.codec is after
    blank = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert new._replace(**blank) == old._replace(**blank)
    assert new.attributes & ~7 == old.attributes & ~7
    assert whole(other) == whole(data)
    assert before is not after or other == data


def test_several_batches_are_done_one_by_one_and_their_crcs_are_right(make_batch):
    batches = [make_batch(b"%d" % n * 100, compression=codec) for n, codec in enumerate(Codec)]
    other = recompress(b"".join(batches), Codec.LZ4, decompressed_bytes_max=10_000)
    headers = validate(other, max_batch_bytes=10_000)
    assert [header.codec for _, header in headers] == [Codec.LZ4] * len(batches)
    assert [record.value for record in whole(other)] == [b"%d" % n * 100 for n in range(len(batches))]


def test_all_batches_together_are_bounded(make_batch):
    data = make_batch(b"x" * 1_000, compression=Codec.GZIP) * 3
    recompress(data, Codec.NONE, decompressed_bytes_max=4_000)
    with pytest.raises(RecordTooLarge):
        recompress(data, Codec.NONE, decompressed_bytes_max=2_500)
    recompress(data, Codec.GZIP, decompressed_bytes_max=0)


# -- the topic ------------------------------------------------------------------------------------------------


def test_it_is_honoured():
    assert DEFINITIONS["compression.type"].effect is ConfigEffect.HONOURED
    assert DEFINITIONS["message.timestamp.before.max.ms"].effect is ConfigEffect.HONOURED


@pytest.mark.parametrize("kind", KINDS)
async def test_batches_get_the_codec_of_their_topic(start, kind):
    engine = await (await start(topic=False)).topic(**{"compression.type": kind})
    for codec in Codec:
        await engine.append(b"small", compression=codec)
        await engine.append(b"x" * LARGE, compression=codec)
    assert await codecs(engine) == [KINDS[kind]] * 10
    engine.log._tails.drop(engine.partition().tail)
    assert await engine.values() == [b"small", b"x" * LARGE] * 5


async def test_by_default_batches_stay_as_their_producer_sent_them(engine, make_batch):
    for codec in Codec:
        await engine.append(b"x" * 100, compression=codec)
    assert await codecs(engine) == list(Codec)


async def test_the_codec_goes_along_with_append_time(start):
    engine = await (await start(topic=False)).topic(
        **{"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}
    )
    result = await engine.append(b"x" * 100)
    header = read_header((await engine.fetch(0)).batches[0])
    assert (header.codec, header.has_append_time, header.max_timestamp) == (
        Codec.GZIP,
        True,
        result.timestamp,
    )


async def test_sequences_are_kept(start):
    engine = await (await start(topic=False)).topic(**{"compression.type": "zstd"})
    for number in range(3):
        await engine.append(b"%d" % number, producer=(7, 0, number))
    assert (await engine.append(b"1", producer=(7, 0, 1))).base_offset == 1


async def test_what_grows_past_the_largest_batch_is_refused(start):
    engine = await (await start(topic=False)).topic(
        **{"compression.type": "uncompressed", "max.message.bytes": "5000"}
    )
    await engine.append(b"x" * 4_000, compression=Codec.GZIP)
    with pytest.raises(RecordTooLarge, match="larger than the limit of 5000"):
        await engine.append(b"x" * 6_000, compression=Codec.GZIP)


async def test_what_cannot_be_decompressed_is_refused(start, make_batch):
    engine = await (await start(topic=False)).topic(**{"compression.type": "uncompressed"})
    good = bytearray(make_batch(b"x" * 300, at=engine.clock.now_ms(), compression=Codec.GZIP))
    good[80] ^= 0xFF
    from millpond.records.batch import seal

    seal(good, 0, len(good))
    with pytest.raises(CorruptBatch):
        await engine.log.append(engine.topic_partition(), good)


@pytest.mark.parametrize(
    ("size", "before", "leaves"),
    [
        (1_000, Codec.NONE, False),
        (appender.INSPECTED_ON_LOOP_BYTES + 1, Codec.NONE, True),
        (appender.INSPECTED_ON_LOOP_BYTES + 1, Codec.ZSTD, True),  # small only as long as it is compressed
        (1_000, Codec.ZSTD, False),
    ],
)
async def test_only_what_is_large_leaves_the_loop(start, monkeypatch, size, before, leaves):
    engine = await (await start(topic=False)).topic(**{"compression.type": "gzip"})
    left, real = [], engine.log._threads.run_on_batch_threads

    def run_on_batch_threads(function):
        left.append(1)
        return real(function)

    monkeypatch.setattr(engine.log._threads, "run_on_batch_threads", run_on_batch_threads)
    await engine.append(b"x" * size, compression=before)
    assert bool(left) is leaves
    assert await codecs(engine) == [Codec.GZIP]


async def test_a_small_batch_does_not_overtake_a_large_one(start):
    engine = await (await start(topic=False)).topic(**{"compression.type": "gzip"})
    large = asyncio.ensure_future(engine.submit(b"x" * LARGE))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(engine.submit(b"small"))
    assert [(await (await each)).base_offset for each in (large, small)] == [0, 1]
