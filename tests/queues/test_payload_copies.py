"""Messages whose bodies lie in the store, as dead letters: a body goes with its message, or the message waits."""

import pytest

from millpond.model.errors import InvalidSubscription
from millpond.model.payloads import HEADER, new_payload_id, parse_reference
from millpond.queues import AckResult

OK = AckResult.OK
DEAD = "films.billing.dead"


async def _chunks(body):
    yield body


@pytest.fixture
def kill(stage):
    """Publish messages, and refuse each for the last time. One with a body is given as the reference to it."""

    async def publish(body, *, by_reference):
        if not by_reference:
            return await stage.publish(body, topic="films")
        payload = str(new_payload_id(stage.broker.clock.now_ms()))
        reference = await stage.broker.payloads.store("films", payload, _chunks(body))
        return await stage.publish(b"", topic="films", headers=((HEADER, str(reference).encode()),))

    async def publish_and_kill(worker, body, *, by_reference):
        await publish(body, by_reference=by_reference)
        assert await worker.nack(*await worker.take()) == [OK]
        await stage.broker.queues.dead_letters.move_all()

    return publish_and_kill


async def bodies(stage, topic):
    """The bodies of a topic's messages, wherever they are."""
    found = []
    for record in await stage.broker.read(topic):
        headers = dict(record.headers)
        if HEADER in headers:
            payload = str(parse_reference(headers[HEADER]).id)
            body = await stage.broker.payloads.read(topic, payload)
            found.append(b"".join([piece async for piece in body.pieces]))
        else:
            found.append(record.value)
    return found


@pytest.mark.parametrize("payload", ["large", "reference"])
async def test_a_body_goes_with_its_letter_though_the_first_letters_had_none(stage, kill, payload):
    await stage.topic("films", payload=payload)
    await stage.subscribe(topic="films", attempts_max=1)
    worker = await stage.worker(topic="films")
    await kill(worker, b"small", by_reference=False)
    await kill(worker, b"a long film", by_reference=True)
    assert await bodies(stage, DEAD) == [b"small", b"a long film"]
    assert stage.broker.log.topics.named(DEAD).overrides["payload"] == payload


async def test_a_letter_whose_body_its_topic_cannot_take_waits_and_the_others_pass_it(stage, kill):
    await stage.topic("films", payload="large")
    await stage.subscribe(topic="films", attempts_max=1)
    worker = await stage.worker(topic="films")
    await stage.topic(DEAD)
    await kill(worker, b"a long film", by_reference=True)
    await kill(worker, b"small", by_reference=False)
    assert await bodies(stage, DEAD) == [b"small"]
    assert (await stage.broker.queues.describe("films", "billing")).dead_letters_waiting == 1
    await stage.broker.log.delete_topic(DEAD)
    await stage.broker.queues.dead_letters.move_all()
    assert await bodies(stage, DEAD) == [b"a long film"]


async def test_a_letter_that_waits_has_its_body_copied_once(stage, kill):
    await stage.topic("films", payload="large")
    await stage.topic(DEAD, payload="large", **{"max.message.bytes": "100"})
    await stage.subscribe(topic="films", attempts_max=1)
    worker = await stage.worker(topic="films")
    await kill(worker, b"a long film", by_reference=True)
    for _ in range(3):
        await stage.broker.queues.dead_letters.move_all()
    assert await bodies(stage, DEAD) == []
    assert len(list(stage.broker.store.list("payloads/"))) == 2
    await stage.broker.log.alter_config(DEAD, {"max.message.bytes": "10000"})
    await stage.broker.queues.dead_letters.move_all()
    assert await bodies(stage, DEAD) == [b"a long film"]


async def test_a_topic_for_letters_that_cannot_take_their_bodies_is_refused(stage):
    await stage.topic("films", payload="reference")
    await stage.topic("plain")
    await stage.topic("shelf", payload="large")
    with pytest.raises(InvalidSubscription, match="'plain' cannot take bodies"):
        await stage.subscribe(topic="films", dead_letter_topic="plain")
    await stage.subscribe(topic="films", dead_letter_topic="shelf")
    with pytest.raises(InvalidSubscription, match="'plain' cannot take bodies"):
        await stage.broker.queues.alter("films", "billing", {"dead_letter_topic": "plain"})
    await stage.broker.queues.alter(
        "films", "billing", {"dead_letter_topic": "plain", "on_exhausted": "drop"}
    )


async def test_a_header_that_only_looks_like_a_reference_keeps_no_letter_back(stage):
    await stage.subscribe(attempts_max=1)
    worker = await stage.worker()
    await stage.publish(b"x", headers=((HEADER, b"nonsense"),))
    assert await worker.nack(*await worker.take()) == [OK]
    await stage.broker.queues.dead_letters.move_all()
    assert await stage.values("orders.billing.dead") == [b"x"]
