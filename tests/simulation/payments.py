"""Transactions over several partitions, and readers who may only see those that were committed.

Whoever pays ends each transaction for certain: a commit that was not answered is asked for again until it is, and what
failed before its commit is given up by beginning anew, which aborts it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.clients import Client, Reader
from tests.simulation.network import Unreachable
from tests.simulation.node import BORN_MS, SimBroker

from millpond.log import TransactionalProducer
from millpond.model.errors import Conflict, MillpondError
from millpond.model.ids import TopicId, TopicPartition
from millpond.records import Record, build_batch
from millpond.service import PollRequest

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

T = TypeVar("T")
TIMEOUT_MS = 15_000
PAYMENTS = "payments"


class Ledger:
    """What was committed for certain, what was given up for certain, and what readers saw."""

    def __init__(self, simulation: "Simulation", topic_id: TopicId) -> None:
        self._simulation = simulation
        self.topic_id = topic_id
        self.committed: dict[bytes, None] = {}
        self.aborted: dict[bytes, None] = {}
        self.seen: dict[int, dict[int, bytes]] = {}

    def see(self, partition: int, offset: int, value: bytes, reader: str) -> None:
        known = self.seen.setdefault(partition, {}).setdefault(offset, value)
        if known != value:
            self._simulation.violate(f"{reader} saw {value!r} at {partition}@{offset}, where {known!r} was")
        if value in self.aborted:
            self._simulation.violate(f"{reader} saw {value!r}, which was aborted")

    def check(self) -> None:
        seen = [value for values in self.seen.values() for value in values.values()]
        for value in self.committed:
            if seen.count(value) != 1:
                self._simulation.violate(f"{value!r} was committed and seen {seen.count(value)} times")
        for value in seen:
            if value in self.aborted:
                self._simulation.violate(f"{value!r} was aborted and seen")
            if value not in self.committed:
                self._simulation.violate(f"{value!r} was seen and not committed")


class Payer(Client):
    def __init__(self, simulation: "Simulation", name: str, ledger: Ledger, transactions: int) -> None:
        super().__init__(simulation, name)
        self._ledger = ledger
        self._left = transactions
        self._number = 0
        self._producer: TransactionalProducer | None = None
        self._sequences: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        await self.look_around()
        while self._left:
            self.doing = f"pays {self._number}"
            try:
                producer = self._producer or await self._begin()
                await self._pay(producer)
            except (Unreachable, MillpondError) as error:
                self._check_known(error)
                self._producer = None  # whoever begins anew aborts what was open
                await self.look_around()
            await asyncio.sleep(self.random.expovariate(1 / self.simulation.pause_s))
        self.done = True
        self.doing = "is done"

    async def _begin(self) -> TransactionalProducer:
        producer = await self._ask_coordinator(lambda b: b.transactions.begin_producer(self.name, TIMEOUT_MS))
        self._producer, self._sequences = producer, {}
        return producer

    async def _pay(self, producer: TransactionalProducer) -> None:
        topic_partitions = self.simulation.topic_partitions(self._ledger.topic_id)
        self._number += 1
        values = {
            topic_partition: b"%s/%d/%d" % (self.name.encode(), self._number, topic_partition.partition)
            for topic_partition in topic_partitions
        }
        commit = self.random.random() < 0.85
        self._ledger.aborted.update(dict.fromkeys(values.values()))  # until it is committed
        await self._ask_coordinator(lambda b: b.transactions.add_partitions(producer, topic_partitions))
        for topic_partition, value in values.items():
            data = self._encode(producer, topic_partition, value)
            await self.ask(self.owner(topic_partition), lambda b: b.log.append(topic_partition, data))  # noqa: B023
        if commit:
            for value in values.values():
                del self._ledger.aborted[value]
        if await self._end(producer, commit=commit) and commit:
            self._ledger.committed.update(dict.fromkeys(values.values()))
            self._left -= 1
        else:
            self._ledger.aborted.update(dict.fromkeys(values.values()))

    async def _end(self, producer: TransactionalProducer, *, commit: bool) -> bool:
        """Whether it ended as it was to. Asked until somebody knows."""
        while True:
            try:
                await self._ask_coordinator(
                    lambda b: b.transactions.end(producer, commit=commit, bump_epoch=False)
                )
            except Conflict as error:  # it was aborted, since it took too long
                self.note(f"could not end {self._number}: {type(error).__name__}")
                self._producer = None
                return False
            except (Unreachable, MillpondError) as error:
                self._check_retriable(error)
                await self.look_around()
            else:
                return True

    def _check_known(self, error: Exception) -> None:
        """A transaction that took too long is aborted by its coordinator, and its producer fenced."""
        if not isinstance(error, Conflict):
            self._check_retriable(error)

    def _encode(
        self, producer: TransactionalProducer, topic_partition: TopicPartition, value: bytes
    ) -> bytes:
        sequence = self._sequences.get(topic_partition, 0)
        self._sequences[topic_partition] = sequence + 1
        return build_batch(
            [Record(value=value)],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=True,
            now_ms=BORN_MS,
        )

    async def _ask_coordinator(self, function: Callable[[SimBroker], Awaitable[T]]) -> T:
        return await self.ask(self.coordinator(self.name), function)


class Auditor(Reader):
    """Reads what was committed, of one partition."""

    def __init__(
        self, simulation: "Simulation", name: str, ledger: Ledger, topic_partition: TopicPartition
    ) -> None:
        super().__init__(simulation, name, topic_partition)
        self._ledger = ledger

    async def _read(self) -> None:
        request = PollRequest(
            PAYMENTS, {self.topic_partition.partition: self.offset}, wait_ms=500, strict=True
        )
        polled = await self.ask(self.owner(self.topic_partition), lambda broker: broker.poller.poll(request))
        for partition, record in polled.records:
            self._ledger.see(partition, record.offset, bytes(record.value or b""), self.name)
        for standing in polled.read_positions:
            self.offset = standing.next_offset
