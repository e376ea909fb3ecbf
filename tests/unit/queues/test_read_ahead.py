"""Reading ahead: what the dispatcher is told, and what stays in memory."""

from dataclasses import replace

from millpond.queues.limits import QueueLimits

LIMITS = QueueLimits()


async def test_messages_are_indexed_and_held(parts):
    made = parts()
    made.feed.append(b"1", b"2", b"3")
    assert await made.read_ahead.read_more()
    assert (made.dispatcher.frontier, sorted(made.read_ahead.held)) == (2, [0, 1])
    assert await made.read_ahead.read_more()
    assert not await made.read_ahead.read_more(), "the log has no more"


async def test_a_message_that_was_taken_is_no_longer_held(parts):
    made = parts()
    made.feed.append(b"1")
    await made.read_ahead.read_more()
    assert made.read_ahead.take(0).value == b"1"
    assert made.read_ahead.take(0) is None


async def test_no_more_bytes_are_held_than_the_limit(parts):
    made = parts(per_read=10, limits=replace(LIMITS, held_bytes_max=20))
    made.feed.append(*[b"0123456789"] * 3)
    await made.read_ahead.read_more()
    assert sorted(made.read_ahead.held) == [0, 1]
    assert made.dispatcher.tracked == 3, "what is not held is tracked all the same"
    made.read_ahead.take(0)
    made.feed.append(b"0123456789")
    await made.read_ahead.read_more()
    assert sorted(made.read_ahead.held) == [1, 3]


async def test_messages_that_are_close_together_are_read_again_at_once(parts):
    made = parts(per_read=3)
    made.feed.append(*[b"%d" % number for number in range(9)])
    made.feed.records[2] = None
    found = await made.read_ahead.read_again([7, 0, 2, 1])
    assert {offset: record.value for offset, record in found.items()} == {0: b"0", 1: b"1", 7: b"7"}
    assert made.feed.reads == [0, 7]


async def test_messages_that_the_log_has_lost_are_counted(parts):
    made = parts()
    made.feed.append(b"1", b"2")
    await made.read_ahead.read_more()
    made.read_ahead.forget_below(5)
    assert made.dispatcher.tracked == 0
    assert made.metrics.voided._value.get() == 5


async def test_reading_pauses_after_a_delivery_while_many_messages_wait(parts):
    made = parts(per_read=4, limits=replace(LIMITS, tracked_max=16, look_further_ms=100))
    made.read_ahead.delivered_at = 1_000
    assert made.read_ahead.paused_until() == 0
    made.feed.append(b"1", b"2", b"3", b"4")
    await made.read_ahead.read_more()
    assert made.read_ahead.paused_until() == 1_100
