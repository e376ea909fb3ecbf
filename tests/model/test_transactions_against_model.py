"""Transactions against a list in memory: whatever clients, other coordinators, clocks and restarts do, a committed
read shows what was decided, in order, up to the first record that is not, and nothing else.

The model knows each record's offset and transaction. A reader does what Kafka's clients do with the aborted list.
Only when another process has written, and this one cannot have noticed yet, may the reader be shown less.
"""

import asyncio
import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from millpond.broker import Broker
from millpond.catalog import appends, transactions
from millpond.catalog.sqlite import SqliteDatabase
from millpond.log import FetchRequest, TransactionLimits, Transactions, open_transactions, partition
from millpond.model.errors import FlushFailed, InvalidTransactionState, ProducerFenced
from millpond.model.ids import TopicPartition
from millpond.records import Record, build_batch, iter_records, walk
from millpond.settings import Settings
from millpond.testing import SimulatedClock

START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
PARTITIONS = 2
ALL = 1 << 26

PARTITION = st.integers(0, PARTITIONS - 1)
CLIENT = st.sampled_from("abc")


@dataclass(eq=False)
class Transaction:
    state: str = "open"
    topic_partitions: set[int] = field(default_factory=set)


@dataclass
class Sent:
    offset: int
    value: bytes
    transaction: Transaction | None

    def is_shown(self):
        return self.transaction is None or self.transaction.state == "committed"

    def is_open(self):
        return self.transaction is not None and self.transaction.state == "open"


@dataclass
class Partition:
    start: int = 0
    sent: list[Sent] = field(default_factory=list)

    def stable(self, end):
        return max(self.start, min((each.offset for each in self.sent if each.is_open()), default=end))

    def shown(self, stable):
        return [each.value for each in self.sent if each.is_shown() and self.start <= each.offset < stable]


class Client:
    """One transactional id; `old` holds the identities that it has lost. Each is old or new for all its life: a
    new one has an epoch for each transaction, and need not say which partitions it writes to (KIP-890)."""

    def __init__(self, *, is_new):
        self.is_new = is_new
        self.producer = None
        self.transaction = None
        self.sequences = {}
        self.old = []

    def goes_on_as(self, producer):
        if self.producer is not None and producer != self.producer:
            self.old.append((self.producer, dict(self.sequences)))
            self.sequences = {}
        self.producer = producer

    def decided(self, state):
        if self.transaction is not None:
            self.transaction.state = state
        self.transaction = None


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.stack = contextlib.ExitStack()
        for module in (open_transactions, partition):
            self.stack.enter_context(mock.patch.object(module, "ABORTED_MAX", 1))
        self.folder = Path(tempfile.mkdtemp(prefix="millpond-model-"))
        self.clock = SimulatedClock(START_MS)
        self.runner = asyncio.Runner()
        self.counter = 0
        self.may_be_late = False
        self.run(self.start())
        self.foreign = SqliteDatabase(self.folder / "catalog.db")
        self.topic_id = self.run(self.broker.log.create_topic("orders", PARTITIONS)).id
        self.model = [Partition() for _ in range(PARTITIONS)]
        self.clients = {name: Client(is_new=name != "c") for name in "abc"}

    def run(self, coroutine):
        return self.runner.run(asyncio.wait_for(coroutine, 20))

    async def start(self):
        self.broker = Broker(
            Settings(
                data_dir=self.folder,
                inline_bytes_max=200,
                tail_bytes_max=600,
                cache_bytes_max=2_000,
                disk_reserve=0,
            ),
            clock=self.clock,
            maintain=False,
        )
        await self.broker.start()
        # Another process's writes are to be noticed when the test says so.
        self.broker.database.has_foreign_commits = lambda: False
        self.coordinator = Transactions(
            self.broker.log,
            self.broker.session,
            self.broker.owned_shards.epoch_of,
            clock=self.clock,
            limits=TransactionLimits(),
        )

    def topic_partition(self, number):
        return TopicPartition(self.topic_id, number)

    def batch(self, count, **producer):
        values = []
        for _ in range(count):
            self.counter += 1
            values.append(b"%d" % self.counter)
        records = [Record(value, timestamp=self.clock.now_ms()) for value in values]
        return values, build_batch(records, **producer)

    def record(self, number, base, values, transaction):
        sent = [Sent(base + at, value, transaction) for at, value in enumerate(values)]
        self.model[number].sent.extend(sent)
        self.model[number].sent.sort(key=lambda each: each.offset)

    def teardown(self):
        try:
            self.run(self.broker.stop())
            self.foreign.close()
        finally:
            self.runner.close()
            self.stack.close()
            shutil.rmtree(self.folder)

    # -- clients ----------------------------------------------------------------------------------------------

    @rule(number=PARTITION, count=st.integers(1, 3))
    def append_plain(self, number, count):
        values, data = self.batch(count)
        result = self.run(self.broker.log.append(self.topic_partition(number), data))
        self.record(number, result.base_offset, values, None)

    @rule(name=CLIENT, known=st.booleans())
    def begin(self, name, known):
        """A new instance of a client, or the same that recovers from an error."""
        client = self.clients[name]
        identity = client.producer.identity if known and client.producer is not None else None
        client.goes_on_as(self.run(self.coordinator.begin_producer(name, TIMEOUT_MS, identity)))
        client.decided("aborted")

    @rule(
        name=CLIENT,
        sends=st.lists(st.tuples(PARTITION, st.integers(1, 3)), min_size=1, max_size=4),
        implicit=st.booleans(),
    )
    def write(self, name, sends, implicit):
        """Some batches of a transaction, all under way at once."""
        client = self.begun(name)
        client.transaction = client.transaction or Transaction()
        made = self.run(self.send(client, sends, implicit and client.is_new))
        for number, values, base in made:
            self.record(number, base, values, client.transaction)

    async def send(self, client, sends, implicit):
        numbers = {number for number, _ in sends}
        if not implicit:
            await self.coordinator.add_partitions(client.producer, [self.topic_partition(n) for n in numbers])
        waiting = []
        for number, count in sends:
            if implicit:
                await self.coordinator.ensure_partitions(client.producer, [self.topic_partition(number)])
            values, future = await self.submit(client, number, count)
            waiting.append((number, values, future))
        return [(number, values, (await future).base_offset) for number, values, future in waiting]

    async def submit(self, client, number, count):
        first = client.sequences.get(number, 0)
        identity = dict(zip(("producer_id", "producer_epoch"), client.producer.identity, strict=True))
        values, data = self.batch(count, **identity, base_sequence=first, transactional=True)
        future = await self.broker.log.submit(self.topic_partition(number), data)
        client.sequences[number] = first + count
        return values, future

    @rule(name=CLIENT, commit=st.booleans(), again=st.booleans())
    def end(self, name, commit, again):
        client = self.with_open(name)
        before = client.producer
        for _ in range(2 if again else 1):
            client.goes_on_as(self.run(self.coordinator.end(before, commit=commit, bump_epoch=client.is_new)))
        client.decided("committed" if commit else "aborted")

    @rule(name=CLIENT, number=PARTITION, commit=st.booleans(), others=st.integers(0, 3))
    def end_while_writing(self, name, number, commit, others):
        """A batch that is under way when its transaction ends is in it, or refused; so are those around it."""
        client = self.begun(name)
        transaction = client.transaction = client.transaction or Transaction()
        found = self.run(self.race(client, number, commit, others))
        for values, outcome, of in found:
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, InvalidTransactionState | FlushFailed | ProducerFenced), outcome
                if of and not client.is_new:  # it goes on where it was
                    client.sequences[number] -= len(values)
            else:
                self.record(number, outcome.base_offset, values, transaction if of else None)
        client.decided("committed" if commit else "aborted")

    async def race(self, client, number, commit, others):
        log, topic_partition = self.broker.log, self.topic_partition(number)
        await self.coordinator.add_partitions(client.producer, [topic_partition])
        waiting = []
        for _ in range(others):
            values, data = self.batch(1)
            waiting.append((values, await log.submit(topic_partition, data), False))
        waiting.append((*await self.submit(client, number, 1), True))
        ending = asyncio.ensure_future(
            self.coordinator.end(client.producer, commit=commit, bump_epoch=client.is_new)
        )
        values, data = self.batch(1)
        waiting.append((values, await log.submit(topic_partition, data), False))
        outcomes = await asyncio.gather(*(future for _, future, _ in waiting), return_exceptions=True)
        client.goes_on_as(await ending)
        return [(each[0], outcome, each[2]) for each, outcome in zip(waiting, outcomes, strict=True)]

    @rule(name=CLIENT, number=PARTITION)
    def zombie(self, name, number):
        """Whoever has lost its epoch can do nothing any more."""
        client = self.begun(name)
        if not client.old:
            self.begin(name, known=False)
        producer, sequences = client.old[-1]
        zombie = Client(is_new=client.is_new)
        zombie.producer, zombie.sequences = producer, dict(sequences)  # what is refused has taken no sequence
        with pytest.raises(ProducerFenced):
            self.run(self.coordinator.add_partitions(producer, [self.topic_partition(number)]))
        with pytest.raises((ProducerFenced, InvalidTransactionState, FlushFailed)):
            self.run(self.sent_by(zombie, number))

    async def sent_by(self, client, number):
        _, future = await self.submit(client, number, 1)
        await future

    def with_open(self, name):
        """This client, with a transaction that has written something; another one if that has one already."""
        for client in (self.clients[name], *self.clients.values()):
            if client.transaction is not None:
                return client
        self.write(name, [(number, 1) for number in range(PARTITIONS)], implicit=False)
        return self.clients[name]

    def begun(self, name):
        if self.clients[name].producer is None:
            self.begin(name, known=False)
        return self.clients[name]

    # -- the world --------------------------------------------------------------------------------------------

    @rule(name=CLIENT, commit=st.booleans(), noticed=st.booleans())
    def end_elsewhere(self, name, commit, noticed):
        """Another process coordinates for once. This one hears of it now, or later."""
        client = self.with_open(name)
        with self.foreign.write() as tx:
            ended = transactions.end(
                tx, client.producer, commit=commit, bump_epoch=client.is_new, now_ms=self.clock.now_ms()
            )
        client.goes_on_as(ended.producer)
        client.decided("committed" if commit else "aborted")
        self.may_be_late = True
        if noticed:
            self.notice()

    @rule(number=PARTITION)
    def append_from_another_broker(self, number):
        values, data = self.batch(1)
        now = self.clock.now_ms()
        share = appends.AppendShare(
            self.topic_partition(number), appends.FOREIGN, 0, len(data), 1, now, now, inline=data
        )
        with self.foreign.write() as tx:
            [placed] = appends.append(tx, [share], None, now_ms=now)
        self.record(number, placed.base_offset, values, None)
        self.may_be_late = True

    @rule()
    def notice(self):
        self.run(self.broker.log.refresh())
        self.may_be_late = False

    @rule(ahead_ms=st.sampled_from([TIMEOUT_MS // 2, TIMEOUT_MS + 1]))
    def time_passes(self, ahead_ms):
        """Transactions that are late are aborted, and their clients pushed out; they begin again."""
        self.clock.advance(ahead_ms)
        aborted = self.run(self.coordinator.abort_timed_out())
        with self.foreign.read() as tx:
            still_open = {
                row[0] for row in tx.rows("SELECT transactional_id FROM transactions WHERE state = 'Ongoing'")
            }
        late = [name for name, each in self.clients.items() if each.transaction and name not in still_open]
        assert aborted == len(late)
        assert ahead_ms <= TIMEOUT_MS or not still_open
        for name in late:
            self.clients[name].decided("aborted")
            self.begin(name, known=False)

    @rule(number=PARTITION, share=st.floats(0, 1))
    def delete_records(self, number, share):
        end = self.broker.log.partition(self.topic_partition(number)).end_offset
        offset = self.model[number].start + round(share * (end - self.model[number].start) / 2)
        self.run(self.broker.log.delete_records(self.topic_partition(number), offset))
        self.model[number].start = max(self.model[number].start, offset)

    @rule()
    def merge(self):
        self.run(self.broker.maintenance.merging.run_once())

    @rule(kill=st.booleans())
    def restart(self, kill):
        self.run(self.abandon_and_start(self.broker) if kill else self.stop_and_start())
        self.may_be_late = False

    async def stop_and_start(self):
        await self.broker.stop()
        await self.start()

    async def abandon_and_start(self, old):
        """As after a kill: no drain, no farewell, and the lock is free."""
        old._services.cancel()
        await asyncio.wait([old._services])
        old._unlock()
        await self.start()
        await old.log.writer.stop()
        old.log._threads._pool.shutdown()
        old.log._threads._batch_pool.shutdown()
        old.store.close()
        old.database.close()

    # -- what must hold ---------------------------------------------------------------------------------------

    @invariant()
    def committed_reads_show_what_was_decided(self):
        for number, model in enumerate(self.model):
            end = self.broker.log.partition(self.topic_partition(number)).end_offset
            shown, stable = self.run(self.read(number, model.start, ALL))
            wanted = model.stable(self.true_end(number))
            assert stable <= wanted, "what is not decided was shown"
            if not self.may_be_late:
                assert stable == wanted
                assert end == self.true_end(number)
            assert shown == model.shown(stable)

    @rule(number=PARTITION, at=st.floats(0, 1), room=st.sampled_from([1, 150, 400]))
    def read_from(self, number, at, room):
        """From anywhere, in small pieces."""
        model = self.model[number]
        end = self.broker.log.partition(self.topic_partition(number)).end_offset
        offset = model.start + round(at * (end - model.start))
        shown, stable = self.run(self.read(number, offset, room))
        wanted = [each for each in model.sent if each.is_shown() and offset <= each.offset < stable]
        assert shown == [each.value for each in wanted]

    @rule(number=PARTITION)
    def the_catalog_agrees(self, number):
        topic_partition = self.topic_partition(number)
        with self.foreign.read() as tx:
            stable = transactions.last_stable_offset(tx, topic_partition, self.true_end(number))
        assert max(stable, self.model[number].start) == self.model[number].stable(self.true_end(number))

    def true_end(self, number):
        with self.foreign.read() as tx:
            return tx.rows(
                "SELECT end_offset FROM partitions WHERE topic_id = ? AND partition = ?",
                self.topic_partition(number),
            )[0][0]

    async def read(self, number, offset, room):
        """As a client with isolation.level=read_committed: values, and the last stable offset."""
        values, first = [], offset
        while True:
            request = FetchRequest(self.topic_partition(number), offset, room)
            [result] = await self.broker.log.fetch([request], bytes_max=room, read_committed=True)
            assert result.error is None, result.error
            assert result.next_offset <= max(offset, result.last_stable_offset)
            if not result.batches:
                return values, result.last_stable_offset
            values += [v for at, v in kept(result) if at >= first]
            offset = result.next_offset


def kept(result):
    """What Kafka's clients keep of a fetch: they begin to skip a producer where an aborted transaction of it
    begins, and stop at its next marker."""
    waiting = sorted(result.aborted, key=lambda each: each.first_offset)
    skipped = set()
    for data in result.batches:
        for position, header in walk(data):
            while waiting and waiting[0].first_offset <= header.last_offset:
                skipped.add(waiting.pop(0).producer_id)
            if header.is_control:
                skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                batch = memoryview(data)[position : position + header.size]
                yield from ((r.offset, r.value) for r in iter_records(batch, decompressed_bytes_max=ALL))


DEFAULTS = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class TestTransactions(TransactionMachine.TestCase):
    settings = DEFAULTS


@pytest.mark.long
class TestTransactionsLonger(TransactionMachine.TestCase):
    settings = settings(DEFAULTS, max_examples=1_000, stateful_step_count=80)
