"""Reading back: what is wrong is never passed on."""

import asyncio

import pytest
from tests.unit.log.conftest import reached

from millpond.log import FetchRequest
from millpond.model.errors import CorruptObject


async def test_a_damaged_byte_in_the_store_is_noticed(start):
    engine = await start(inline_bytes_max=0, tail_bytes_max=0)
    await engine.append(b"precious")
    objects = engine.broker.store._store._store._objects
    [key] = objects
    objects[key] = objects[key].replace(b"precious", b"precioux")
    with pytest.raises(CorruptObject) as raised:
        await engine.values()
    assert raised.value.facts["key"] == key


async def test_a_damaged_inline_byte_is_noticed(start):
    engine = await start(tail_bytes_max=0)
    await engine.append(b"precious")
    with engine.broker.database.write() as tx:
        [(inline,)] = tx.rows("SELECT inline FROM extents")
        tx.rows("UPDATE extents SET inline = ?", (bytes(inline).replace(b"precious", b"precioux"),))
    with pytest.raises(CorruptObject, match="inline"):
        await engine.values()


async def test_a_stamped_batch_out_of_its_place_is_noticed(start, make_batch):
    """Its offset lies outside of its checksum: one flipped bit would hide it, or show it to another reader."""
    engine = await start(tail_bytes_max=0)
    await engine.append(*[b"x"] * 8)
    for bases in ((0, 4 ^ 1 << 40, 6), (0, 1, 6), (0, 4, 2)):
        data = b"".join(make_batch(b"a", b"b", base_offset=base) for base in bases)
        with engine.broker.database.write() as tx:
            tx.rows("UPDATE extents SET inline = ?, length = ?, stamped = 1", (data, len(data)))
        engine.log._fetcher.forget(engine.topic_partition())
        with pytest.raises(CorruptObject, match="a batch holds offsets"):
            await engine.values()


async def test_a_stamped_batch_past_the_end_of_its_row_is_noticed(start, make_batch):
    engine = await start(tail_bytes_max=0)
    await engine.append(*[b"x"] * 8)
    data = make_batch(b"a", b"b", base_offset=6 ^ 1 << 40)
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE extents SET inline = ?, length = ?, stamped = 1", (data, len(data)))
    with pytest.raises(CorruptObject, match="more offsets"):
        await engine.values()


async def test_more_offsets_than_the_row_says_are_noticed(start):
    engine = await start(tail_bytes_max=0)
    await engine.append(b"a", b"b", b"c")
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE extents SET end_offset = 2")
    with pytest.raises(CorruptObject, match="more offsets"):
        await engine.values()


async def test_a_short_read_is_noticed(start):
    engine = await start(inline_bytes_max=0, tail_bytes_max=0)
    await engine.append(b"precious")
    engine.faults.shorten_read(5)
    with pytest.raises(CorruptObject):
        await engine.values()
    assert await engine.values() == [b"precious"]


async def test_an_object_that_is_gone_for_good_is_damage(start):
    engine = await start(inline_bytes_max=0, tail_bytes_max=0)
    await engine.append(b"precious")
    engine.broker.store.delete(list(engine.broker.store.list("")))
    with pytest.raises(CorruptObject, match="gone"):
        await engine.values()


async def test_a_damaged_partition_says_so_alone(start):
    engine = await start(inline_bytes_max=0, tail_bytes_max=0, partitions=2)
    await engine.append(b"precious")
    await engine.append(b"sound", partition=1)
    objects = engine.broker.store._store._store._objects
    key = next(iter(objects))
    objects[key] = objects[key].replace(b"precious", b"precioux")
    requests = [FetchRequest(engine.topic_partition(number), 0, 1_000) for number in (0, 1)]
    damaged, sound = await engine.log.fetch(requests, bytes_max=1_000)
    assert isinstance(damaged.error, CorruptObject)
    assert damaged.batches == ()
    assert sound.error is None
    assert sound.size > 0


async def test_batches_are_stamped_with_offset_and_epoch_however_they_are_read(start, tmp_path):
    from millpond.records import walk

    engine = await start(tmp_path, inline_bytes_max=300, tail_bytes_max=0)
    for size in (1, 1_000, 1, 1_000):
        await engine.append(b"x" * size, b"y")
    for merged in (False, True):
        headers = [h for data in (await engine.fetch(0)).batches for _, h in walk(data)]
        assert [h.base_offset for h in headers] == [0, 2, 4, 6]
        assert {h.leader_epoch for h in headers} == {engine.partition().epoch}
        if not merged:
            for _ in range(8):
                await engine.append(b"z", b"z")
            assert await engine.broker.maintenance.merging.run_once()
            await engine.log.delete_records(engine.topic_partition(), 0)
            engine.log._fetcher.forget(engine.topic_partition())
            headers = [h for data in (await engine.fetch(0)).batches for _, h in walk(data)]
            assert [h.base_offset for h in headers] == list(range(0, 24, 2))
            return


async def test_batches_that_are_stamped_keep_their_offsets_and_gaps_are_passed_over(start, make_batch):
    """What compaction leaves: of offsets 0 to 7 only 1, 2 and 5 are still there."""
    from millpond.records import walk

    engine = await start(tail_bytes_max=0)
    await engine.append(*[b"x"] * 8)
    data = make_batch(b"1", b"2", base_offset=1) + make_batch(b"5", base_offset=5, leader_epoch=3)
    with engine.broker.database.write() as tx:
        tx.rows("UPDATE extents SET inline = ?, length = ?, stamped = 1", (data, len(data)))
    await engine.append(b"8")
    result = await engine.fetch(0)
    headers = [header for part in result.batches for _, header in walk(part)]
    assert [(h.base_offset, h.next_offset) for h in headers] == [(1, 3), (5, 6), (8, 9)]
    assert headers[1].leader_epoch == 3
    assert result.next_offset == 9
    assert await engine.values(3) == [b"5", b"8"]
    assert await engine.values(6) == [b"8"]
    engine.log._fetcher.forget(engine.topic_partition())
    assert await engine.values(6) == [b"8"]


async def test_an_object_merged_away_under_a_slow_reader_is_found_again(start, tmp_path):
    engine = await start(tmp_path, inline_bytes_max=0, tail_bytes_max=0, garbage_grace=0)
    for number in range(12):
        await engine.append(b"%d" % number)
    await engine.broker.stop()  # its journal is sealed by its death
    engine_again = await start(tmp_path, topic=False, inline_bytes_max=0, tail_bytes_max=0, garbage_grace=0)
    engine_again.topic_id = engine.topic_id
    hold = engine_again.faults.hold("read")
    reading = asyncio.ensure_future(engine_again.values())
    await reached(hold)
    upkeep = engine_again.broker.maintenance
    assert await upkeep.merging.run_once() == 12
    assert await upkeep.garbage.run_once() == 1
    assert [key.split("/")[0] for key in engine_again.broker.store.list("")] == ["segments"]
    hold.release()
    assert await reading == [b"%d" % number for number in range(12)]


async def test_what_precedes_the_damage_is_read_and_then_the_error(start):
    engine = await start(inline_bytes_max=0, tail_bytes_max=0)
    for value in (b"first", b"second", b"precious", b"behind"):
        await engine.append(value)
    objects = engine.broker.store._store._store._objects
    for key, data in objects.items():
        objects[key] = data.replace(b"precious", b"precioux")
    found = await engine.fetch(0, room=100_000)
    assert (found.next_offset, found.error) == (2, None)
    assert len(b"".join(found.batches)) == found.size > 0
    behind = await engine.fetch(2, room=100_000)
    assert isinstance(behind.error, CorruptObject)
    assert behind.batches == ()


async def test_an_object_that_is_cut_short_takes_only_the_parts_that_it_lacks(start, tmp_path):
    engine = await start(tmp_path, inline_bytes_max=0, tail_bytes_max=0, partitions=2)
    await asyncio.gather(*(engine.append(b"x" * 1_000, partition=number) for number in (0, 1)))
    store = engine.broker.store
    read = store.read

    def cut_short(key, start, length):
        """The last byte of the object is gone."""
        if start + length >= store.size(key):
            raise CorruptObject(key=key, position=start, reason="cut short")
        return read(key, start, length)

    store.read = cut_short
    requests = [FetchRequest(engine.topic_partition(number), 0, 10_000) for number in (0, 1)]
    results = await engine.log.fetch(requests, bytes_max=20_000)
    assert sorted(type(result.error) for result in results if result.error) == [CorruptObject]
    assert sorted(result.size > 0 for result in results) == [False, True]
