"""Consumers of a subscription that pull, from whichever broker, and acknowledge, refuse, or forget.

With half of the seeds it is in the order of keys: the messages of a key are delivered in the order of the log, each not
before somebody has acknowledged the one before it, whatever happens to brokers."""

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.clients import Client
from tests.simulation.network import Unreachable
from tests.simulation.node import SimBroker

from millpond.model.errors import (
    MillpondError,
    SubscriptionBusy,
    SubscriptionExists,
    UnknownConsumer,
    UnknownSubscription,
)
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.subscriptions import SubscriptionMode
from millpond.queues.dispatcher_results import AckResult
from millpond.queues.pull_consumers import Pulled, PullerName

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

SUBSCRIPTION = "workers"
CONFIG = {
    "ack_timeout_ms": 3_000,
    "attempts_max": 1_000,
    "backoff_ms": 100,
    "backoff_max_ms": 1_000,
}
PULLED = 5


class Jobs:
    """What became of the messages of the subscribed topic, whoever worked on them."""

    def __init__(self, simulation: "Simulation", topic: str, topic_id: TopicId) -> None:
        self._simulation = simulation
        self.topic = topic
        self.topic_id = topic_id
        self.acknowledged: dict[tuple[int, int], float] = {}
        """When the broker said that it is durable, by partition and offset."""
        self.deliveries = 0
        self.again = 0
        self._mode = SubscriptionMode.KEY_SHARED if simulation.plan.batches % 2 else SubscriptionMode.SHARED
        self._newest: dict[tuple[int, bytes], int] = {}
        """Of each key, what was delivered of it."""
        self._acknowledging: set[tuple[int, int]] = set()
        """What somebody has acknowledged, answered or not."""

    async def subscribe(self, client: Client) -> None:
        try:
            await client.until_answered(
                lambda broker: broker.queues.create(self.topic, SUBSCRIPTION, {**CONFIG, "mode": self._mode}),
                known=SubscriptionExists,
            )
        except SubscriptionExists:
            return

    def delivered(self, pulled: Pulled, broker: str) -> None:
        self.deliveries += 1
        self.again += pulled.retry_count > 0
        offset = pulled.record.offset
        self._simulation.checker.read(
            TopicPartition(self.topic_id, pulled.partition),
            offset,
            bytes(pulled.record.value or b""),
            broker,
        )
        done_at = self.acknowledged.get((pulled.partition, offset))
        if done_at is not None:
            self._simulation.violate(
                f"{broker} delivered {pulled.partition}@{offset} again, acknowledged at {done_at:.4f}"
            )

        if self._mode is SubscriptionMode.KEY_SHARED:
            self._check_order(pulled, broker)

    def _check_order(self, pulled: Pulled, broker: str) -> None:
        partition, offset = pulled.partition, pulled.record.offset
        place = partition, pulled.record.key or b""
        before = self._newest.get(place, offset)
        if before > offset:
            self._simulation.violate(f"{broker} delivered {partition}@{offset} after {before} of its key")
        if before < offset and (partition, before) not in self._acknowledging:
            self._simulation.violate(f"{broker} delivered {partition}@{offset} while {before} was open")
        self._newest[place] = max(before, offset)

    def acknowledging(self, pulled: list[Pulled]) -> None:
        self._acknowledging.update((each.partition, each.record.offset) for each in pulled)

    def answered(self, pulled: list[Pulled], answers: list[AckResult]) -> None:
        for each, answer in zip(pulled, answers, strict=True):
            if answer is AckResult.OK:
                self.acknowledged.setdefault((each.partition, each.record.offset), self._simulation.world.now)


class Worker(Client):
    def __init__(self, simulation: "Simulation", name: str, jobs: Jobs) -> None:
        super().__init__(simulation, name)
        self._jobs = jobs
        self._puller = PullerName(jobs.topic, SUBSCRIPTION, name)

    async def run(self) -> None:
        while not self._settled():
            nodes = [node for node in self.simulation.nodes.values() if node.loop is not None]
            node = self.random.choice(nodes) if nodes else None
            self.doing = f"pulls from {node.name}" if node else "finds nobody"
            try:
                pulled = await self.ask(node, self._pull, timeout_s=3.0)
                await asyncio.sleep(self.random.uniform(0, 0.5))
                await self._answer(node, pulled)
            except (Unreachable, UnknownConsumer, SubscriptionBusy, UnknownSubscription):
                await asyncio.sleep(0.1)
            except MillpondError as error:
                self._check_retriable(error)
                await asyncio.sleep(0.1)
        self.done = True
        self.doing = "is done"

    def _settled(self) -> bool:
        """An answer that was lost leaves no trace here: what the catalog says counts."""
        if not self.simulation.quiet:
            return False
        floors = dict(
            self.simulation.catalog.rows(
                "SELECT partition, floor FROM subscription_state WHERE topic_id = ?", (self._jobs.topic_id,)
            )
        )
        topic_partitions = self.simulation.topic_partitions(self._jobs.topic_id)
        return all(
            floors.get(topic_partition.partition, 0) >= self.simulation.end_of(topic_partition)
            for topic_partition in topic_partitions
        )

    async def _pull(self, broker: SimBroker) -> list[Pulled]:
        pulled = await broker.pulling.pull(self._puller, messages_max=PULLED, wait_ms=300)
        for each in pulled:
            self._jobs.delivered(each, f"{broker.session[:4]} to {self.name}")
        return pulled

    async def _answer(self, node: object, pulled: list[Pulled]) -> None:
        """Most are acknowledged; some are refused, some forgotten, as long as not all is well."""
        acks, nacks = [], []
        for each in pulled:
            luck = 0.0 if self.simulation.quiet else self.random.random()
            if luck < 0.8:
                acks.append(each)
            elif luck < 0.9:
                nacks.append(each)

        self._jobs.acknowledging(acks)

        async def answer(broker: SimBroker) -> None:
            answers = await broker.pulling.ack(self._puller, [each.ack_id for each in acks])
            self._jobs.answered(acks, answers)
            if nacks:
                await broker.pulling.nack(self._puller, [each.ack_id for each in nacks], 50)

        if acks or nacks:
            await self.ask(node, answer)  # type: ignore[arg-type]
