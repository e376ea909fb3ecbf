"""Reading messages of a subscription from the log."""

import pytest


@pytest.mark.parametrize("any_owner", [False, True])
async def test_what_expires_while_it_is_read_is_passed_over(stage, monkeypatch, any_owner):
    await stage.publish(b"1", b"2", b"3")
    await stage.restart()
    log, feed, topic_partition = stage.broker.log, stage.broker.queues._feed, stage.topic_partition()
    in_pool = log._fetcher._reads._in_pool

    async def expire_and_read(work):
        await log.delete_records(topic_partition, 2)
        return await in_pool(work)

    monkeypatch.setattr(log._remote_reader if any_owner else log._fetcher._reads, "_in_pool", expire_and_read)
    piece = await (feed.read_stored if any_owner else feed.read)(topic_partition, 0)
    assert (piece.records, piece.next_offset, piece.log_start) == ((), 2, 2)
