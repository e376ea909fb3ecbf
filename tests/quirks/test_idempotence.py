"""Idempotent producers: Java's and kafka-python's are so by default, so this is how most records come."""

from tests.quirks.client import Client, batch_of, produce_request

from millpond.protocol import ErrorCode
from millpond.testing import running_broker

LAST_SEQUENCE = 2**31 - 1
PRODUCER = 4711
REMEMBERED = 5


def sequenced(sequence, *values, epoch=0, producer=PRODUCER):
    return batch_of(*(values or (b"a",)), producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


async def send(client, *arguments, **named):
    answer = await client.produce("orders", sequenced(*arguments, **named))
    return ErrorCode(answer.error_code), answer.base_offset


async def test_a_repeat_of_the_last_five_batches_gets_its_first_offset_again(client):
    """A producer keeps up to five requests in flight, and sends any of them again when it missed the answer. Kafka
    remembers five, and so may every client."""
    await client.topic()
    for sequence in range(7):
        assert await send(client, sequence) == (ErrorCode.NONE, sequence)
    for sequence in range(7 - REMEMBERED, 7):
        assert await send(client, sequence) == (ErrorCode.NONE, sequence)
    for forgotten in (0, 1):
        assert await send(client, forgotten) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(client, 7) == (ErrorCode.NONE, 7)


async def test_batches_that_are_looked_into_and_current_ones_are_answered_in_order_with_five_in_flight(
    client, clock
):
    """kafkajs and librdkafka send headers whose newest time is old, between current ones. The broker reads the records
    of the former on a thread; the latter must not overtake them, or their producer is out of order."""
    await client.topic()
    sequence, sent = 0, []
    for number in range(50):
        count, at = (2_000, 1_000) if number % 2 == 0 else (1, clock.now_ms())
        batch = batch_of(
            *[b"v"] * count, now_ms=at, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
        )
        request = produce_request("orders", batch)
        sent.append((request, client.send(request, 9), sequence))
        sequence += count
        if len(sent) == REMEMBERED:
            request, correlation_id, base = sent.pop(0)
            await expect_offset(client, request, correlation_id, base)
    for request, correlation_id, base in sent:
        await expect_offset(client, request, correlation_id, base)


async def expect_offset(client, request, correlation_id, offset):
    answer = client.read(request, 9, await client.receive(), correlation_id)
    part = answer.responses[0].partition_responses[0]
    assert (ErrorCode(part.error_code), part.base_offset) == (ErrorCode.NONE, offset)


async def test_a_gap_or_an_overlap_is_out_of_order(client):
    """Between them a batch was lost: writing on would break the promise for good."""
    await client.topic()
    await send(client, 0, b"a", b"b")
    refused = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(client, 3) == refused
    assert await send(client, 1, b"b", b"c") == refused
    assert await send(client, 0, b"a", b"b", b"c") == refused
    assert await send(client, 2) == (ErrorCode.NONE, 2)


async def test_an_old_epoch_is_fenced_and_a_new_one_begins_at_zero(client):
    """INVALID_PRODUCER_EPOCH, not PRODUCER_FENCED: that is what Kafka's Produce says, and what clients expect."""
    await client.topic()
    assert await send(client, 0) == (ErrorCode.NONE, 0)
    assert await send(client, 1, epoch=2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert await send(client, 0, epoch=2) == (ErrorCode.NONE, 1)
    assert await send(client, 1, epoch=1) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert await send(client, 1, epoch=2) == (ErrorCode.NONE, 2)


async def test_sequences_wrap_to_zero_after_the_largest(client):
    """A producer that lives long enough gets there, and a broker that expects 2^31 then stops it for good."""
    await client.topic()
    assert await send(client, LAST_SEQUENCE - 1, b"a", b"b") == (ErrorCode.NONE, 0)
    assert await send(client, 0) == (ErrorCode.NONE, 2)
    assert await send(client, LAST_SEQUENCE - 1, b"a", b"b") == (ErrorCode.NONE, 0)


async def test_a_batch_may_lie_across_the_wrap(client):
    """Its last sequence is then smaller than its first."""
    await client.topic()
    assert await send(client, LAST_SEQUENCE, b"a", b"b", b"c") == (ErrorCode.NONE, 0)
    assert await send(client, 2) == (ErrorCode.NONE, 3)


async def test_a_producer_nobody_remembers_may_begin_anywhere(client):
    """Its state may have expired with its records (KAFKA-7190); refusing it stopped healthy producers."""
    await client.topic()
    assert await send(client, 5) == (ErrorCode.NONE, 0)
    assert await send(client, 0, producer=PRODUCER + 1) == (ErrorCode.NONE, 1)
    assert await send(client, 7) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


async def test_repeats_are_known_after_a_restart(tmp_path):
    """A producer whose broker died sends again what was not answered, even if it had been written."""
    async with running_broker(tmp_path, kafka=True) as broker, Client(broker) as client:
        await client.topic()
        assert [await send(client, sequence) for sequence in range(2)] == [(0, 0), (0, 1)]
    async with running_broker(tmp_path, kafka=True) as broker, Client(broker) as client:
        assert await send(client, 1) == (ErrorCode.NONE, 1)
        assert await send(client, 2) == (ErrorCode.NONE, 2)
        assert await send(client, 4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


async def test_partitions_have_sequences_of_their_own(client):
    """A producer counts from 0 in each partition."""
    await client.topic(partitions=2)
    for partition in (0, 1):
        answer = await client.produce("orders", sequenced(0), partition)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)


async def test_an_idempotent_producer_sends_one_batch_for_each_partition(client):
    """Two could be written by halves, and a repeat of both would have no answer."""
    await client.topic()
    answer = await client.produce("orders", sequenced(0) + sequenced(1))
    assert answer.error_code == ErrorCode.INVALID_RECORD


async def test_every_new_producer_gets_an_id_of_its_own(client):
    """Two with one id would take each other's records for repeats, and lose them."""
    answers = [await client.new_producer(version=version) for version in range(6) for _ in range(2)]
    assert {(each.error_code, each.producer_epoch) for each in answers} == {(ErrorCode.NONE, 0)}
    ids = [each.producer_id for each in answers]
    assert len(set(ids)) == len(ids)
    assert ids == sorted(ids)
