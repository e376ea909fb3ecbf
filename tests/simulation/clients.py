"""Those who use the brokers: producers that send again until they are answered, and readers that follow.

Each finds its broker through any other's view, as real clients do, and looks again when it was wrong.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.network import CLIENTS, Unreachable
from tests.simulation.node import BORN_MS, Node, SimBroker

from millpond.catalog.coordinators import shard_of
from millpond.log import AppendResult
from millpond.log.fetcher import FetchRequest
from millpond.model.errors import MillpondError, OutOfOrderSequence
from millpond.model.ids import TopicPartition
from millpond.records import Record, build_batch, iter_records
from millpond.topology import addresses_of

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

T = TypeVar("T")
AGAIN_S = 0.15
FETCH_BYTES = 64 * 1024
DECOMPRESSED_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class View:
    """What a broker says of who serves what, by name of the broker."""

    partitions: dict[TopicPartition, str] = field(default_factory=dict)
    shards: dict[int, str] = field(default_factory=dict)


async def view_of(broker: SimBroker) -> View:
    topology = broker.topology.current
    names = {session: addresses_of(member)["grpc"] for session, member in topology.members.items()}
    return View(
        {
            topic_partition: names[owner.session]
            for topic_partition, owner in topology.partitions.items()
            if owner.session in names
        },
        {shard: names[owner.session] for shard, owner in topology.shards.items() if owner.session in names},
    )


class Client:
    def __init__(self, simulation: "Simulation", name: str) -> None:
        self.simulation = simulation
        self.random = simulation.world.random
        self.name = name
        self.done = False
        self.doing = "begins"
        self._view = View()

    async def run(self) -> None:
        raise NotImplementedError

    async def ask(
        self, node: Node | None, function: Callable[[SimBroker], Awaitable[T]], timeout_s: float = 5.0
    ) -> T:
        if node is None:
            raise Unreachable("nobody")
        return await self.simulation.network.call(CLIENTS, node, function, timeout_s)

    def owner(self, topic_partition: TopicPartition) -> Node | None:
        return self.simulation.nodes.get(self._view.partitions.get(topic_partition, ""))

    def coordinator(self, group_id: str) -> Node | None:
        return self.simulation.nodes.get(self._view.shards.get(shard_of(group_id), ""))

    async def look_around(self) -> None:
        """Ask anybody who serves what; wait a little, since whoever was wrong may still be."""
        await asyncio.sleep(self.random.uniform(AGAIN_S / 2, AGAIN_S))
        nodes = [node for node in self.simulation.nodes.values() if node.loop is not None]
        if not nodes:
            return
        try:
            self._view = await self.ask(self.random.choice(nodes), view_of, timeout_s=1.0)
        except (Unreachable, MillpondError):
            return

    async def until_answered(
        self, function: Callable[[SimBroker], Awaitable[T]], known: type[MillpondError] | None = None
    ) -> T:
        """By any broker. Raises an error that is `known`: after an answer was lost it says that it has happened."""
        while True:
            nodes = [node for node in self.simulation.nodes.values() if node.loop is not None]
            try:
                return await self.ask(self.random.choice(nodes) if nodes else None, function)
            except (Unreachable, MillpondError) as error:
                if known is not None and isinstance(error, known):
                    raise
                self._check_retriable(error)
                await asyncio.sleep(AGAIN_S)

    def _check_retriable(self, error: Exception) -> None:
        if isinstance(error, MillpondError) and not error.retriable:
            self.simulation.violate(f"{self.name} was refused for good: {error!r}")

    def note(self, text: str) -> None:
        self.simulation.note(self.name, text)


@dataclass(slots=True)
class Batch:
    number: int
    values: list[bytes]
    sequence: int


class Producer(Client):
    """Several batches at a time, in order. With `idempotent` each is in the log exactly once, in its order; otherwise
    each try has its own values, and those that were answered are in the log, in order."""

    def __init__(
        self,
        simulation: "Simulation",
        name: str,
        topic_partition: TopicPartition,
        *,
        batches: int,
        idempotent: bool,
    ) -> None:
        super().__init__(simulation, name)
        self.topic_partition = topic_partition
        self.idempotent = idempotent
        self.left = batches
        self.tries = 0
        self._number = 0
        self._sequence = 0
        self._producer_id = -1
        self._waiting: list[Batch] = []

    async def run(self) -> None:
        if self.idempotent:
            self._producer_id = await self.until_answered(lambda b: b.transactions.new_producer_id())
        await self.look_around()
        while self.left or self._waiting:
            self._fill(self.random.randint(1, 3))
            self.doing = f"waits for batch {self._waiting[0].number} of {self.topic_partition.partition}"
            await self._send()
            await asyncio.sleep(self.random.expovariate(1 / self.simulation.pause_s))
        self.done = True
        self.doing = "is done"

    def _fill(self, wanted: int) -> None:
        while len(self._waiting) < wanted and self.left:
            self.left -= 1
            size = self.random.choice((20, 20, 20, 2_000, 12_000))
            count = self.random.randint(1, 3)
            values = [b"%s/%d/%d/" % (self.name.encode(), self._number, n) for n in range(count)]
            values = [value + b"." * (size - len(value)) for value in values]
            self._waiting.append(Batch(self._number, values, self._sequence))
            self._number += 1
            self._sequence += count

    async def _send(self) -> None:
        self.tries += 1
        batches = list(self._waiting)
        values = [self._values(batch) for batch in batches]
        data = [self._encode(batch, each) for batch, each in zip(batches, values, strict=True)]
        topic_partition = self.topic_partition
        gap_s = self.random.choice((0.0, 0.05, 0.3))
        gaps_s = [self.random.uniform(0, gap_s) for _ in data]

        async def append(broker: SimBroker) -> list[int | MillpondError]:
            futures: list[asyncio.Future[AppendResult]] = []
            refusal: list[int | MillpondError] = []
            try:
                for each, gap_s in zip(data, gaps_s, strict=True):
                    futures.append(await broker.log.submit(topic_partition, each))
                    await asyncio.sleep(gap_s)
            except MillpondError as error:
                refusal = [error]
            return [await _offset_of(future) for future in futures] + refusal

        if self.idempotent:
            self.simulation.checker.sent(topic_partition, self.name, values)
        else:
            self.simulation.checker.sent_plainly(topic_partition, values)
        try:
            answers = await self.ask(
                self.owner(topic_partition), append, timeout_s=self.random.choice((1.0, 5.0, 30.0))
            )
        except (Unreachable, MillpondError) as error:
            self._check_retriable(error)
            await self.look_around()
            return
        await self._take(batches, values, answers)

    async def _take(
        self, batches: list[Batch], values: list[list[bytes]], answers: list[int | MillpondError]
    ) -> None:
        for number, (batch, each, answer) in enumerate(zip(batches, values, answers, strict=False)):
            if isinstance(answer, MillpondError):
                if number == 0 or not isinstance(answer, OutOfOrderSequence):
                    self._check_retriable(answer)  # behind one that failed, a batch is out of order
                if self.tries % 50 == 0:
                    self.note(f"is refused again: {type(answer).__name__}")
                await self.look_around()
                return
            self.simulation.checker.acknowledged(self.topic_partition, self.name, answer, each)
            self._waiting.remove(batch)

    def _values(self, batch: Batch) -> list[bytes]:
        return batch.values if self.idempotent else [b"%d>" % self.tries + each for each in batch.values]

    def _encode(self, batch: Batch, values: list[bytes]) -> bytes:
        records = [Record(value=value, key=b"%d" % number) for number, value in enumerate(values)]
        if not self.idempotent:
            return build_batch(records, now_ms=BORN_MS)
        return build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=batch.sequence,
            now_ms=BORN_MS,
        )


class Reader(Client):
    """From the first offset on, for as long as there may be more."""

    def __init__(self, simulation: "Simulation", name: str, topic_partition: TopicPartition) -> None:
        super().__init__(simulation, name)
        self.topic_partition = topic_partition
        self.offset = 0

    async def run(self) -> None:
        await self.look_around()
        while not (self.simulation.quiet and self.offset >= self.simulation.end_of(self.topic_partition)):
            self.doing = f"reads {self.topic_partition.partition} at {self.offset}"
            try:
                await self._read()
            except (Unreachable, MillpondError) as error:
                self._check_retriable(error)
                await self.look_around()
            await asyncio.sleep(self.random.uniform(0, self.simulation.pause_s))
        self.done = True
        self.doing = "is done"

    async def _read(self) -> None:
        found = await self.ask(self.owner(self.topic_partition), fetch(self.topic_partition, self.offset))
        for offset, value in found:
            self.simulation.checker.read(self.topic_partition, offset, value, self.name)
            if offset != self.offset:
                self.simulation.violate(f"{self.name} was given {offset} where {self.offset} comes next")
            self.offset = offset + 1


async def _offset_of(future: "asyncio.Future[AppendResult]") -> int | MillpondError:
    try:
        return (await future).base_offset
    except MillpondError as error:
        return error


def fetch(
    topic_partition: TopicPartition, offset: int, wait_ms: int = 500
) -> Callable[[SimBroker], Awaitable[list[tuple[int, bytes]]]]:
    async def read(broker: SimBroker) -> list[tuple[int, bytes]]:
        request = FetchRequest(topic_partition, offset, FETCH_BYTES)
        (result,) = await broker.log.fetch([request], bytes_max=FETCH_BYTES, wait_ms=wait_ms)
        if result.error is not None:
            raise result.error
        records = [
            record
            for batch in result.batches
            for record in iter_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES)
        ]
        return [(record.offset, bytes(record.value or b"")) for record in records if record.offset >= offset]

    return read
