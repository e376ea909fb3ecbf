"""One story: a plan from the seed, brokers, clients, faults for a while, then peace, and what must be true after it."""

import asyncio
import contextlib
import gc
import hashlib
import itertools
import logging
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulation.bugs import BUGS
from tests.simulation.catalog import SharedCatalog
from tests.simulation.chance import seeded
from tests.simulation.checker import Checker
from tests.simulation.clients import Client, Producer, Reader
from tests.simulation.jobs import Jobs, Worker
from tests.simulation.loop import SimLoop, Stuck, World
from tests.simulation.members import Member
from tests.simulation.nemesis import Nemesis
from tests.simulation.network import Network
from tests.simulation.node import Node
from tests.simulation.payments import PAYMENTS, Auditor, Ledger, Payer

from millpond.model.errors import TopicExists
from millpond.model.ids import Session, TopicId, TopicPartition
from millpond.objects.memory import MemoryStore
from millpond.observability.logs import TextFormatter
from millpond.settings import Settings

HURRIED_S = 0.05
"""Between two requests of a client once all is well."""
HEAL_S = 120.0
"""Virtual seconds in which everybody must be done once all is well."""
ORDERS = "orders"
JOBS = "jobs"
JOBS_PARTITIONS = 2
PAYMENTS_PARTITIONS = 2
HISTORIES = ("sim_appends", "sim_owners", "sim_offsets", "sim_deaths")
LOUD = logging.ERROR
FORESEEN = (
    "session fenced; broker stops writing",
    "catalog failed; broker is shutting down",
    "wall clock jumped",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the seed decides before anything happens."""

    brokers: int
    partitions: int
    chaos_s: float
    calm_s: float
    pause_s: float
    lease_ms: int
    uploads: bool
    maintain: bool
    flush_delay_ms: int
    inline_bytes_per_second: int
    batches: int
    members: int
    """Of a consumer group."""
    workers: int
    """Of a subscription."""
    payers: int
    """Producers with transactions."""

    @classmethod
    def of(cls, random: Random) -> "Plan":
        chaos_s, batches = random.uniform(6, 22), random.randint(6, 16)
        return cls(
            brokers=random.randint(2, 4),
            partitions=random.randint(2, 5),
            chaos_s=chaos_s,
            calm_s=random.choice((0.7, 2.0, 5.0)),
            pause_s=1.5 * chaos_s / batches,
            lease_ms=random.choice((2_000, 3_000)),
            uploads=random.random() < 0.8,
            maintain=random.random() < 0.3,
            flush_delay_ms=random.choice((20, 250)),
            inline_bytes_per_second=random.choice((4 << 20, 20_000, 0)),
            batches=batches,
            members=random.choice((0, 1, 3)),
            workers=random.choice((0, 1, 3)),
            payers=random.choice((0, 0, 1, 2)),
        )


@dataclass(frozen=True, slots=True)
class Report:
    seed: int
    violations: list[str]
    trace: list[str]
    hash: str
    seconds: float
    """Of virtual time."""
    faults: dict[str, int]
    counts: dict[str, int]
    failovers: list[float]

    @property
    def ok(self) -> bool:
        return not self.violations


@dataclass(slots=True)
class Trace:
    lines: list[str] = field(default_factory=list)

    def add(self, at: float, who: str, text: str) -> None:
        self.lines.append(f"{at:10.4f}  {who:<14} {text}")

    def digest(self, history: str) -> str:
        return hashlib.sha256("\n".join([*self.lines, history]).encode()).hexdigest()


class Simulation:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.world = World(Random(seed))  # the same each time
        self.plan = Plan.of(self.world.random)
        self.trace = Trace()
        self.violations: list[str] = []
        self.counts: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        self.gone: dict[Session, float] = {}
        """When a broker crashed or was paused, by its session."""
        self.graves: list[Any] = []
        """What vanished is kept to the end: nothing of it may run because memory was wanted."""
        self.catalog = SharedCatalog(self.world)
        self.store = MemoryStore(Session("shared"))
        self.network = Network(self)
        self.nodes: dict[str, Node] = {}
        self.checker = Checker(self)
        self.clients: list[Client] = []
        self.owned_topics: set[bytes] = set()
        """Topics in which only owners append."""
        self.ledger: Ledger | None = None
        self.quiet = False
        """Whether producers are done, and all is well."""
        self._numbers = itertools.count(1)
        self.failovers: list[float] = []
        self.pause_s = self.plan.pause_s
        self._history = ""

    # -- what others use --------------------------------------------------------------------------------------

    def note(self, who: str, text: str) -> None:
        self.trace.add(self.world.now, who, text)

    def violate(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)
            self.note("VIOLATION", text)

    def complain(self, text: str, error: BaseException | None = None) -> None:
        self.violate(text)

    def count_fault(self, name: str) -> None:
        self.faults[name] = self.faults.get(name, 0) + 1

    def gone_now(self, node: Node) -> None:
        if node.broker is not None and node.serving:
            self.gone[node.broker.session] = self.world.now

    def add_node(self) -> Node:
        node = Node(self, f"broker-{next(self._numbers)}", self._settings())
        self.nodes[node.name] = node
        return node

    def end_of(self, topic_partition: TopicPartition) -> int:
        rows = self.catalog.rows(
            "SELECT end_offset FROM partitions WHERE topic_id = ? AND partition = ?", topic_partition
        )
        end: int = rows[0][0]
        return end

    def topic_partitions(self, topic_id: TopicId) -> list[TopicPartition]:
        rows = self.catalog.rows("SELECT partitions FROM topics WHERE id = ?", (topic_id,))
        return [TopicPartition(topic_id, number) for number in range(rows[0][0])]

    # -- the story --------------------------------------------------------------------------------------------

    def run(self) -> Report:
        listener = _Listener(self)
        logger = logging.getLogger("millpond")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(listener)
        logger.propagate = False
        try:
            with seeded(Random(self.world.random.randrange(1 << 62))):
                self._tell()
        finally:
            logger.removeHandler(listener)
            logger.setLevel(level)
            logger.propagate = propagate
            self._end()
        return self._report()

    def _tell(self) -> None:
        self.note("plan", str(self.plan))
        home = SimLoop(self.world, "clients")
        fate = SimLoop(self.world, "nemesis")
        for _ in range(self.plan.brokers):
            self.add_node().start()
        story = self._spawn(home, self._story(home, fate))
        try:
            self.world.run(story.done, deadline=self.plan.chaos_s + 2 * HEAL_S)
        except Stuck as stuck:
            self.violate(f"nothing will ever happen again {stuck}")
        if story.done():
            story.result()
        else:
            self.violate("not everybody was done in time")
            for client in self.clients:
                if not client.done:
                    self.violate(f"{client.name} {client.doing}")
        for complaint in self.world.complaints:
            self.violate(complaint)
        if not self.violations:
            self.checker.check()
            if self.ledger is not None:
                self.ledger.check()
        self.failovers = self.checker.failovers()
        self._history = repr([self.catalog.rows(f"SELECT * FROM {each}") for each in HISTORIES])
        self.note("end", f"{self.catalog.commits} commits, {self.checker.acknowledgements} acknowledged")

    async def _story(self, home: SimLoop, fate: SimLoop) -> None:
        await self._people(Client(self, "setup"))
        tasks = [home.create_task(client.run()) for client in self.clients]
        nemesis = Nemesis(self)
        chaos = self._spawn(fate, nemesis.run(self.plan.chaos_s))
        while not chaos.done():
            await asyncio.sleep(0.25)
            self.checker.check_appends()
            if self.violations:
                return
        chaos.result()
        healed = self.world.now
        self.pause_s = HURRIED_S
        while self.world.now - healed < HEAL_S and not self.violations:
            if all(client.done for client in self.clients if isinstance(client, Producer | Payer)):
                self.quiet = True
            unsettled = self.checker.unsettled()
            if unsettled is None and all(client.done for client in self.clients):
                break
            await asyncio.sleep(0.25)
        else:
            self._blame(unsettled)
        for task in tasks:
            if task.done():
                task.result()

    def _blame(self, unsettled: str | None) -> None:
        if self.violations:
            return
        if unsettled is not None:
            self.violate(f"not settled after {HEAL_S} s: {unsettled}")
        for client in self.clients:
            if not client.done:
                self.violate(f"not done after {HEAL_S} s: {client.name} {client.doing}")

    async def _people(self, setup: Client) -> None:
        """Topics, and those who use them."""
        orders = await self._create(setup, ORDERS, self.plan.partitions)
        for topic_partition in self.topic_partitions(orders):
            self._add_producers(
                topic_partition, (True, False) if topic_partition.partition % 2 else (True, True)
            )
            self.clients.append(Reader(self, f"reader-{topic_partition.partition}", topic_partition))
        for number in range(self.plan.members):
            self.clients.append(Member(self, f"member-{number}", self.topic_partitions(orders)))
        if self.plan.workers:
            jobs = Jobs(self, JOBS, await self._create(setup, JOBS, JOBS_PARTITIONS))
            await jobs.subscribe(setup)
            for topic_partition in self.topic_partitions(jobs.topic_id):
                self._add_producers(topic_partition, (True,))
            self.clients += [Worker(self, f"worker-{n}", jobs) for n in range(self.plan.workers)]
        if self.plan.payers:
            topic_id = await self._create(setup, PAYMENTS, PAYMENTS_PARTITIONS)
            self.owned_topics.discard(topic_id)  # markers come from coordinators
            self.ledger = Ledger(self, topic_id)
            count = self.plan.batches // 2
            self.clients += [Payer(self, f"payer-{n}", self.ledger, count) for n in range(self.plan.payers)]
            self.clients += [
                Auditor(self, f"auditor-{topic_partition.partition}", self.ledger, topic_partition)
                for topic_partition in self.topic_partitions(topic_id)
            ]

    async def _create(self, setup: Client, name: str, partitions: int) -> TopicId:
        with contextlib.suppress(TopicExists):
            await setup.until_answered(lambda broker: broker.log.create_topic(name, partitions), TopicExists)
        while not all(node.broker and node.broker.log.topics.knows(name) for node in self.nodes.values()):
            await asyncio.sleep(0.1)
        topic_id = TopicId(bytes(self.catalog.rows("SELECT id FROM topics WHERE name = ?", (name,))[0][0]))
        self.owned_topics.add(topic_id)
        return topic_id

    def _add_producers(self, topic_partition: TopicPartition, kinds: tuple[bool, ...]) -> None:
        for idempotent in kinds:
            name = f"{'idempotent' if idempotent else 'plain'}-{len(self.clients)}"
            self.clients.append(
                Producer(self, name, topic_partition, batches=self.plan.batches, idempotent=idempotent)
            )

    def _settings(self) -> Settings:
        return Settings(
            catalog="memory://",
            storage="memory://",
            lease=self.plan.lease_ms,
            flush_delay=self.plan.flush_delay_ms,
            inline_bytes_per_second=self.plan.inline_bytes_per_second,
            group_initial_rebalance_delay=300,
        )

    @staticmethod
    def _spawn(loop: SimLoop, coroutine: Any) -> "asyncio.Task[None]":
        with loop.running():
            return loop.create_task(coroutine)

    def _end(self) -> None:
        """Nothing of this world is to say anything when memory is cleared."""
        loops = [*self.world.loops, *(loop for loop, _ in self.graves)]
        for loop in loops:
            loop.forget()
        self.catalog.close()

    def _report(self) -> Report:
        commits = {
            "commits": self.catalog.commits,
            "records acknowledged": self.checker.acknowledgements,
            "records read": self.checker.reads,
            "partitions appended to": self.checker.appends,
        }
        return Report(
            seed=self.seed,
            violations=self.violations,
            trace=self.trace.lines,
            hash=self.trace.digest(self._history),
            seconds=self.world.now,
            faults=self.faults,
            counts={**self.counts, **commits},
            failovers=self.failovers,
        )


class _Listener(logging.Handler):
    """What brokers log goes into the trace; an unexpected error is a violation."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.WARNING)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= LOUD and not record.getMessage().startswith(FORESEEN):
            self._simulation.violate(f"logged: {TextFormatter().format(record)}")


def simulate(seed: int, bug: str = "none") -> Report:
    """Without the collector of garbage: what vanished stays where it is until the end, and nothing of it runs."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        with BUGS[bug]():
            return Simulation(seed).run()
    finally:
        if was_on:
            gc.enable()
        gc.collect(1)
