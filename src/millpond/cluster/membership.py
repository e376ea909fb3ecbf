"""What a broker does as a member of the cluster: it renews its lease, distributes what dead brokers owned, and hands
over partitions and coordinator shards to other brokers.

There is no leader. Any broker that finds an expired lease declares its holder dead and distributes what it owned. No
broker takes anything from a live one. Each broker reads the same rows, computes which of its own partitions and shards
others should own, finishes the work on them and hands them over. So a partition has one owner at a time, and work in
progress on it does not fail.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from millpond.catalog import topology, writers
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.topology import Ownership, topic_of
from millpond.cluster.handover import Holder, prepared
from millpond.log import Log
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError, WriterDead
from millpond.model.ids import Session, TopicPartition
from millpond.model.placement import Unit, has_too_many, moves
from millpond.observability.metrics import ClusterMetrics
from millpond.topology import Lease, Peers, TopologyView

HEARTBEATS_PER_LEASE: Final = 5
RETRY_S: Final = 0.5
HANDOVERS_PER_STEP: Final = 200
"""Partitions handed over in one step. They are not served during the handover."""
HANDOVER_S: Final = 10.0
"""How long partitions may take to finish what is in flight before a handover. After that this broker keeps them for
now."""
LEAVE_S: Final = 10.0
"""How long a stopping broker tries to hand over what it owns."""

logger = logging.getLogger(__name__)


class Membership:
    def __init__(
        self,
        log: Log,
        view: TopologyView,
        peers: Peers,
        session: Session,
        lease: Lease,
        *,
        partition_holders: Sequence[Holder[TopicPartition]],
        shard_holders: Sequence[Holder[int]],
        clock: Clock,
        lease_ms: int,
        metrics: ClusterMetrics,
    ) -> None:
        """The holders of partitions and of coordinator shards are prepared for a handover in the given order."""
        self._log = log
        self._view = view
        self._peers = peers
        self._session = session
        self._lease = lease
        self._partition_holders = partition_holders
        self._shard_holders = shard_holders
        self._clock = clock
        self._lease_ms = lease_ms
        self._metrics = metrics
        self._woken = asyncio.Event()
        self._balanced_version = -1
        """The topology version for which this broker has handed over all that it should."""
        self._balance_lock = asyncio.Lock()

    # -- service ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew the lease, adopt, and hand over, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat_renewal())
            tasks.create_task(self._repeat_balance())

    def on_topology(self) -> None:
        """The topology has changed: check what to hand over."""
        self._metrics.brokers.set(len(self._view.current.members))
        self._woken.set()

    # -- lease renewal ----------------------------------------------------------------------------------------

    async def _repeat_renewal(self) -> None:
        while True:
            try:
                await self.renew()
                await asyncio.sleep(self._lease_ms / HEARTBEATS_PER_LEASE / 1000)
            except WriterDead:  # the writer has reported it to the broker, which shuts down
                self._lease.lapse()
                return
            except MillpondError as error:
                logger.warning("lease renewal failed; will retry", extra={"error": str(error)})
                await asyncio.sleep(min(RETRY_S, self._lease_ms / HEARTBEATS_PER_LEASE / 1000))

    async def renew(self) -> None:
        """Renew the lease. It goes through the commit queue, so it also proves that commits still work. It has a
        transaction to itself, so that it does not fail together with a flush that waits for a paused broker's lock."""
        sent_at_ms = self._clock.monotonic_ms()

        def renew(tx: CatalogTransaction) -> list[str]:
            writers.renew(tx, self._session, self._lease_ms)
            return list(writers.expired_brokers(tx, self._session))

        expired = await self._log.write(renew, own_commit=True, bypass_limit=True)
        self._lease.renewed(sent_at_ms)
        if expired and self._lease.is_steady:
            await self._take_over([Session(each) for each in expired])
        elif expired:
            brokers = ",".join(str(self._node_id_of(session)) for session in expired)
            logger.info("takeover postponed; own lease renewal was late", extra={"brokers": brokers})

    def _node_id_of(self, session: str) -> int | str:
        """The broker's node id, or its session if this broker has not read its row."""
        member = self._view.current.member(session)
        return member.node_id if member is not None else session

    async def _take_over(self, expired: Sequence[Session]) -> None:
        def declare_dead(tx: CatalogTransaction) -> list[str]:
            tx.terminate_connections(expired)
            declared_dead = writers.mark_expired_brokers_dead(tx, expired, self._clock.now_ms())
            if declared_dead:
                topology.bump_version(tx)
                topology.adopt(tx)
            return list(declared_dead)

        declared_dead = await self._log.write(declare_dead, own_commit=True)
        for session in declared_dead:
            self._metrics.declared_dead.inc()
            logger.warning(
                "broker lease expired; taking over its partitions",
                extra={"broker": self._node_id_of(session)},
            )
        await self._log.refresh()
        self._peers.notify_all()

    # -- balancing --------------------------------------------------------------------------------------------

    async def _repeat_balance(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self.balance()
            except WriterDead:
                return
            except MillpondError as error:
                logger.warning("rebalancing partitions failed; will retry", extra={"error": str(error)})
                await asyncio.sleep(RETRY_S)
                self._woken.set()

    async def balance(self) -> int:
        """Hand over the partitions and shards that other brokers should own; returns how many. Does nothing unless the
        topology has changed since the last time."""
        async with self._balance_lock:
            handed_over = 0
            while self._balanced_version != self._view.current.version:
                version = self._view.current.version
                step = await self._hand_over_shards() + await self._hand_over_partitions()
                handed_over += step
                if step == 0:
                    self._balanced_version = version
            return handed_over

    async def leave(self) -> None:
        """Hand everything over, if there is another broker."""
        if self._view.current.members.keys() <= {self._session}:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._log.write(
                    lambda tx: topology.set_leaving(tx, self._session, leaving=True), own_commit=True
                )
                await self._log.refresh()
                await self.balance()
        except (MillpondError, TimeoutError) as error:
            logger.warning(
                "partitions not handed over before stop", extra={"error": str(error) or "timed out"}
            )

    def _receivers(self) -> list[str]:
        return [each.session for each in self._view.current.members.values() if not each.leaving]

    def _movable_partitions(self) -> Mapping[TopicPartition, Ownership]:
        """The owners of the partitions to balance, without partitions that are halted here: a new owner would not know
        of the halt and would continue to write."""
        owners = self._view.current.partitions
        halted = {partition.topic_partition for partition in self._log.partitions() if partition.halted}
        return (
            {
                topic_partition: each
                for topic_partition, each in owners.items()
                if topic_partition not in halted
            }
            if halted
            else owners
        )

    async def _hand_over_partitions(self) -> int:
        owners = self._movable_partitions()
        counts = Counter(owner.session or "" for owner in owners.values())
        if not has_too_many(counts, self._receivers(), self._session):
            return 0  # the usual case; computing the moves between other brokers would be slow
        planned = moves(_by_session(owners), self._receivers(), family=topic_of)
        mine = [
            topic_partition for topic_partition in planned if owners[topic_partition].session == self._session
        ][:HANDOVERS_PER_STEP]
        if not mine:
            return 0
        handovers = {
            topic_partition: (owners[topic_partition].epoch, planned[topic_partition])
            for topic_partition in mine
        }
        began = self._clock.monotonic_ms()
        async with prepared(self._partition_holders, mine, HANDOVER_S):
            handed_over: int = await self._log.write(
                lambda tx: _hand_over(tx, self._session, handovers), own_commit=True
            )
            await self._announce_handover(handed_over)
        self._metrics.handed_over.inc(handed_over)
        logger.info(
            "partitions handed over",
            extra={"partitions": handed_over, "duration_ms": self._clock.monotonic_ms() - began},
        )
        return handed_over

    async def _hand_over_shards(self) -> int:
        owners = self._view.current.shards
        planned = moves(_by_session(owners), self._receivers())
        mine = [shard for shard in planned if owners[shard].session == self._session]
        if not mine:
            return 0
        handovers = {shard: (owners[shard].epoch, planned[shard]) for shard in mine}
        try:
            async with prepared(self._shard_holders, mine):
                handed_over: int = await self._log.write(
                    lambda tx: _hand_over_shards(tx, self._session, handovers), own_commit=True
                )
                await self._announce_handover(handed_over)
        finally:
            self._woken.set()  # a handover that failed is tried again
        return handed_over

    async def _announce_handover(self, handed_over: int) -> None:
        await self._log.refresh()
        if handed_over:
            self._peers.notify_all()


def _by_session(owners: Mapping[Unit, Ownership]) -> dict[Unit, str]:
    return {unit: owner.session or "" for unit, owner in owners.items()}


def _hand_over(tx: CatalogTransaction, session: str, handovers: dict[TopicPartition, tuple[int, str]]) -> int:
    topology.bump_version(tx)
    return topology.hand_over(tx, session, handovers)


def _hand_over_shards(tx: CatalogTransaction, session: str, handovers: dict[int, tuple[int, str]]) -> int:
    topology.bump_version(tx)
    return topology.hand_over_shards(tx, session, handovers)
