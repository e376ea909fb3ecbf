"""How transactions end: epochs, offsets, repeats and lost answers, restarts, and those that take too long."""

import asyncio
from contextlib import contextmanager

import pytest
from tests.lossy_catalog import LossyDatabase
from tests.unit.log.transactional import Client, committed, coordinator, stable

from millpond.catalog import groups
from millpond.catalog.groups import GroupOffset
from millpond.model.errors import (
    CatalogUnavailable,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerFenced,
)
from millpond.testing import SimulatedClock

DAY_MS = 86_400_000


# -- epochs ---------------------------------------------------------------------------------------------------


async def test_after_a_bump_the_old_epoch_is_fenced_and_the_new_one_begins_at_nought(engine, no_thread):
    client = await (await Client.begin(engine)).add()
    await client.send(b"one", b"two")
    old = Client(engine, client.coordinator, client.producer)
    old.sequences = {0: 2}
    await client.end(bump_epoch=True)
    assert client.producer.epoch == 1
    await client.add()
    assert await committed(engine) == [b"one", b"two"]
    no_thread(engine)
    with pytest.raises(ProducerFenced):
        await engine.append(b"zombie", producer=(*old.producer.identity, 2))
    client.sequences = {0: 2}
    with pytest.raises(OutOfOrderSequence):
        await client.send(b"three")
    client.sequences = {}
    await client.send(b"three")
    await client.end(bump_epoch=True)
    assert await committed(engine) == [b"one", b"two", b"three"]


async def test_without_a_bump_sequences_go_on(engine):
    client = await (await Client.begin(engine)).add()
    for number in range(3):
        await client.add()
        await client.send(b"%d" % number)
        await client.end()
    assert client.sequences == {0: 3}
    assert await committed(engine) == [b"0", b"1", b"2"]


async def test_a_fence_that_comes_while_sequences_are_being_loaded_is_kept(engine):
    client = await (await Client.begin(engine)).add()
    await client.send(b"x")
    partition = engine.partition()
    partition.sequences.forget_committed()
    states = {client.producer.producer_id: await sequence_state(engine, client)}
    await client.end(commit=False, bump_epoch=True)
    partition.sequences.load(states)  # what was read before the end
    old = (client.producer.producer_id, 0, 1)
    with pytest.raises(ProducerFenced):
        await engine.append(b"zombie", producer=old)


async def sequence_state(engine, client):
    from millpond.catalog import producers

    states = await engine.log.read(lambda tx: producers.load(tx, engine.topic_partition()))
    return states[client.producer.producer_id]


# -- implicit partitions, offsets -----------------------------------------------------------------------------


async def test_partitions_that_are_known_to_be_in_the_transaction_cost_no_write(start):
    engine = await start(partitions=2)
    client = await Client.begin(engine)
    by, topic_partitions = client.coordinator, [engine.topic_partition(0), engine.topic_partition(1)]
    await by.ensure_partitions(client.producer, topic_partitions[:1])
    before = engine.rows("SELECT commit_no FROM writers")
    await by.ensure_partitions(client.producer, topic_partitions[:1])
    assert engine.rows("SELECT commit_no FROM writers") == before
    await by.ensure_partitions(client.producer, topic_partitions)
    assert engine.rows("SELECT commit_no FROM writers") != before
    await client.send(b"x")
    await client.send(b"y", partition=1)
    await client.end(bump_epoch=True)
    await by.ensure_partitions(client.producer, topic_partitions[:1])  # the next transaction
    await client.send(b"z")
    assert stable(await engine.fetch(0, read_committed=True)) == (2, 3)


async def test_offsets_are_published_by_a_commit_and_dropped_by_an_abort(engine):
    client = await Client.begin(engine)
    by = client.coordinator
    for offset, commit in ((5, True), (6, False)):
        with pytest.raises(InvalidTransactionState):
            await by.add_offsets(client.producer, "g", [GroupOffset(engine.topic_partition(), offset)])
        await by.add_group(client.producer, "g")
        await by.add_offsets(client.producer, "g", [GroupOffset(engine.topic_partition(), offset, 1, "m")])
        await client.end(commit=commit)
        found = await engine.log.read(lambda tx: groups.committed_offsets(tx, "g"))
        assert found == [GroupOffset(engine.topic_partition(), 5, 1, "m")]
    await by.add_offsets(client.producer, "g", [GroupOffset(engine.topic_partition(), 7)], opens=True)
    await client.end()
    found = await engine.log.read(lambda tx: groups.committed_offsets(tx, "g"))
    assert [each.offset for each in found] == [7]


# -- ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bump_epoch", [True, False])
@pytest.mark.parametrize("commit", [True, False])
async def test_repeating_an_end_answers_the_same_and_writes_nothing(engine, commit, bump_epoch):
    client = await (await Client.begin(engine)).add()
    await client.send(b"x")
    by, before = client.coordinator, client.producer
    await client.end(commit=commit, bump_epoch=bump_epoch)
    assert await by.end(before, commit=commit, bump_epoch=bump_epoch) == client.producer
    assert engine.partition().end_offset == 2


async def test_an_abort_of_nothing_bumps_the_epoch_of_a_client_that_can_be_told(engine):
    client = await Client.begin(engine)
    with pytest.raises(InvalidTransactionState):
        await client.end(commit=False)
    await client.end(commit=False, bump_epoch=True)
    assert client.producer.epoch == 1


@contextmanager
def losing(engine, *plan):
    """The catalog loses answers to COMMIT: by plan, a word for each write."""
    committer = engine.log.writer._committer
    real = committer._database
    committer._database, committer._sleep = LossyDatabase(real, *plan), lambda _: None
    try:
        yield
    finally:
        committer._database = real


@pytest.mark.parametrize("loss", ["lose before", "lose after"])
async def test_an_end_whose_answer_was_lost_takes_effect_once(engine, loss):
    client = await (await Client.begin(engine)).add()
    await client.send(b"x")
    with losing(engine, loss):
        await client.end(commit=False, bump_epoch=True)
    assert client.producer.epoch == 1
    result = await engine.fetch(0, read_committed=True)
    assert (stable(result), len(result.aborted)) == ((2, 2), 1)


@pytest.mark.parametrize("loss", ["lose before", "lose after"])
async def test_an_end_of_which_nobody_could_tell_may_be_repeated(engine, loss):
    client = await (await Client.begin(engine)).add()
    await client.send(b"x")
    with losing(engine, loss, *["refuse"] * 5), pytest.raises(OutcomeUnknown):
        await client.end(bump_epoch=True)
    await client.end(bump_epoch=True)
    assert client.producer.epoch == 1
    await engine.append(b"plain")  # if the marker is not known yet, this finds it
    assert await committed(engine) == [b"x", b"plain"]


# -- restarts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("bump_epoch", [True, False])
async def test_a_transaction_goes_on_after_a_restart(start, tmp_path, commit, bump_epoch):
    clock = SimulatedClock()
    first = await start(tmp_path, clock=clock)
    client = await (await Client.begin(first)).add()
    await client.send(b"one")
    await first.broker.stop()
    engine = await start(tmp_path, clock=clock, topic=False)
    engine.topic_id = first.topic_id
    assert stable(await engine.fetch(0, read_committed=True)) == (0, 1)
    again = Client(engine, coordinator(engine), client.producer)
    again.sequences = client.sequences
    await again.send(b"two")
    await again.end(commit=commit, bump_epoch=bump_epoch)
    assert await committed(engine) == ([b"one", b"two"] if commit else [])
    assert stable(await engine.fetch(0, read_committed=True)) == (3, 3)


async def test_an_end_is_repeated_after_a_restart(start, tmp_path):
    clock = SimulatedClock()
    first = await start(tmp_path, clock=clock)
    client = await (await Client.begin(first)).add()
    await client.send(b"one")
    before = client.producer
    await client.end(commit=False, bump_epoch=True)
    await first.broker.stop()
    engine = await start(tmp_path, clock=clock, topic=False)
    engine.topic_id = first.topic_id
    assert await coordinator(engine).end(before, commit=False, bump_epoch=True) == client.producer
    result = await engine.fetch(0, read_committed=True)
    assert (stable(result), len(result.aborted)) == ((2, 2), 1)
    with pytest.raises(ProducerFenced):
        await engine.append(b"zombie", producer=(*before.identity, 1), transactional=True)


# -- time -----------------------------------------------------------------------------------------------------


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_client_fenced(engine):
    slow = await (await Client.begin(engine, "slow", timeout_ms=1_000)).add()
    patient = await (await Client.begin(engine, "patient", timeout_ms=5_000)).add()
    await slow.send(b"slow")
    await patient.send(b"patient")
    by = slow.coordinator
    engine.clock.advance(1_000)
    assert await by.abort_timed_out() == 0
    engine.clock.advance(1)
    assert await by.abort_timed_out() == 1
    assert await by.abort_timed_out() == 0
    result = await engine.fetch(0, read_committed=True)
    assert stable(result) == (1, 3)
    with pytest.raises(ProducerFenced):
        await slow.send(b"late")
    for act in (slow.add, slow.end):
        with pytest.raises(ProducerFenced):
            await act()
    await patient.end()
    assert await committed(engine) == [b"patient"]


async def test_the_service_aborts_what_is_late_and_goes_on_after_a_failure(engine, eventually, caplog):
    by = coordinator(engine, check_every_ms=1, expire_every_ms=1, id_expiry_ms=DAY_MS)
    client = await (await Client.begin(engine, timeout_ms=1_000)).add()
    await client.send(b"x")
    real, failures = engine.log.read, [CatalogUnavailable(reason="down"), ZeroDivisionError()]

    async def failing(function):
        if failures:
            raise failures.pop()
        return await real(function)

    engine.log.read = failing
    engine.clock.advance(1_001)
    service = asyncio.ensure_future(by.run())
    await eventually(lambda: engine.partition().end_offset == 2)
    service.cancel()
    assert not failures
    assert "unexpected error in transaction maintenance; will retry" in caplog.messages


async def test_a_transactional_id_that_nobody_uses_is_forgotten(engine):
    by = coordinator(engine)
    idle, busy = await Client.begin(engine, "idle"), await Client.begin(engine, "busy")
    await busy.add()
    engine.clock.advance(7 * DAY_MS)
    assert await by.forget_unused() == 0
    engine.clock.advance(1)
    assert await by.forget_unused() == 1
    with pytest.raises(InvalidProducerIdMapping):
        await idle.add()
    assert await by.abort_timed_out() == 1
    assert (await Client.begin(engine, "idle")).producer.epoch == 0
