"""What rides in the catalog is counted, and has a bound."""

import asyncio
from pathlib import Path

from tests.loop_time import LoopTime

from millpond import Broker, Settings
from millpond.log.inline import InlineBytes
from millpond.model.ids import TopicId, TopicPartition
from millpond.objects.memory import MemoryStore
from millpond.testing import Faults, FaultyStore

ONE, OTHER = (TopicPartition(TopicId(b"t" * 16), number) for number in (0, 1))


def test_appends_add_and_a_look_at_the_rows_sets_it_right():
    inline = InlineBytes(100)
    inline.add(ONE, 30)
    inline.add(OTHER, 30)
    assert inline.total == 60
    assert inline.needs_merging
    assert inline.has_room_for(40)
    assert not inline.has_room_for(41)
    inline.found(ONE, 5)
    assert inline.total == 35
    assert not inline.needs_merging
    inline.add(ONE, 5)
    inline.forget(ONE)
    inline.forget(ONE)
    assert inline.total == 30


class Uploads(FaultyStore):
    appends_are_uploads = True


async def test_while_the_store_is_away_the_catalog_takes_so_much_and_no_more(
    tmp_path: Path, loop_time: LoopTime
):
    """Merging cannot empty it, so at the bound appends are refused instead of filling the database."""
    faults = Faults()
    store = Uploads(MemoryStore("s"), faults)
    settings = Settings(data_dir=tmp_path, storage="memory://", inline_bytes_kept_max=20_000, flush_delay=1)
    async with Broker(settings, wrap_store=lambda _: store, maintain=False) as broker:
        await broker.log.create_topic("t", 1)
        faults.error_rate = 1.0
        results = [
            await asyncio.gather(broker.produce("t", b"x" * 1_000), return_exceptions=True) for _ in range(40)
        ]
        taken = [result for [result] in results if not isinstance(result, Exception)]
        rows = await broker.log.read(lambda tx: tx.rows("SELECT sum(length) FROM extents"))
        assert rows[0][0] == broker.log._inline.total <= 20_000
        assert 15 <= len(taken) < 20
        assert f"millpond_log_inline_bytes {float(rows[0][0])}" in broker.metrics.expose().decode()
        faults.error_rate = 0.0
        loop_time.advance(settings.log_limits().refuse_ms / 1000)
        assert await broker.maintenance.merging.run_once() == len(taken)
        assert broker.log._inline.total == 0
        assert (await broker.produce("t", b"more")).base_offset == len(taken)
        assert 0 < broker.log._inline.total < 1_000
