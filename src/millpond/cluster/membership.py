"""A broker's place among others: its lease, what it adopts from the dead, and what it gives to those with room.

There is no leader. Whoever sees a lease that has run out declares its holder dead and shares out what it owned. What
living brokers own is taken by nobody: each looks at the same rows, sees what it has too much of, finishes it and hands
it over itself, so that a partition is served by one broker at a time and nothing of it fails on the way.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millpond.catalog import topology, writers
from millpond.catalog.database import Transaction
from millpond.catalog.topology import Owner, Topology, topic_of
from millpond.cluster.joining import addresses_of
from millpond.cluster.lease import Lease, Shards
from millpond.cluster.nudges import Nudges
from millpond.log import Log
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError, Unavailable, WriterDead
from millpond.model.ids import Session, TopicPartition
from millpond.model.placement import Unit, has_too_many, moves
from millpond.observability.metrics import ClusterMetrics

HEARTBEATS_PER_LEASE: Final = 5
RETRY_S: Final = 0.5
GIFTS_PER_STEP: Final = 200
"""Partitions handed over at once: they are not served meanwhile."""
HANDOVER_S: Final = 10.0
"""How long partitions that are handed over may take to finish: if they do not, they are served on, for now."""
LEAVE_S: Final = 10.0
"""How long a broker that stops tries to hand over what it has."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handover:
    """What other parts do before something is given away: each returns when nothing of theirs is left of it."""

    partitions: Callable[[Sequence[TopicPartition]], Awaitable[None]]
    done: Callable[[Sequence[TopicPartition]], None]
    """They are given away, or after all are not."""
    shards: Callable[[Sequence[int]], Awaitable[None]]


class Membership:
    def __init__(
        self,
        log: Log,
        session: Session,
        lease: Lease,
        shards: Shards,
        handover: Handover,
        nudges: Nudges,
        *,
        clock: Clock,
        lease_ms: int,
        metrics: ClusterMetrics,
    ) -> None:
        self._log = log
        self._session = session
        self._lease = lease
        self._shards = shards
        self._handover = handover
        self._nudges = nudges
        self._clock = clock
        self._lease_ms = lease_ms
        self._metrics = metrics
        self._woken = asyncio.Event()
        self._balanced = -1
        self._giving: set[int] = set()
        """Shards that are being handed over: they are not taken in again before that has ended."""
        self._turn = asyncio.Lock()
        self._looking: asyncio.Future[None] | None = None
        self._look_turn = asyncio.Lock()

    # -- as a service -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew the lease, adopt, and give, until cancelled."""
        async with asyncio.TaskGroup() as duties:
            duties.create_task(self._repeat_renewal())
            duties.create_task(self._repeat_balance())

    def take_in(self, found: Topology) -> None:
        """The log has read the cluster's new shape."""
        for shard, owner in found.shards.items():
            if owner.session == self._session and shard not in self._giving:
                self._shards[shard] = owner.epoch
            else:
                self._shards.pop(shard, None)
        self._metrics.brokers.set(len(found.members))
        self._woken.set()

    async def look(self) -> None:
        """What others ask for when they have changed something. Those who ask meanwhile share the next look."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        async with self._look_turn:
            self._looking = None
            await self._log.refresh()

    def tell_others(self) -> None:
        self._nudges.send_soon(self._others())

    def tell_owner(self, where: TopicPartition) -> None:
        """Something was written to a partition of another broker, beside its owner."""
        owner = self._log.topology.partitions.get(where)
        member = self._log.topology.member(owner.session) if owner is not None else None
        if member is not None and (address := addresses_of(member).get("grpc")):
            self._nudges.send_one_soon(address)

    async def nudge_others(self) -> None:
        """Returns when the others have looked, too, as far as they answer."""
        await self._nudges.send(self._others())

    def _others(self) -> list[str]:
        members = [each for each in self._log.topology.members.values() if each.session != self._session]
        return [address for each in members if (address := addresses_of(each).get("grpc"))]

    # -- staying alive ----------------------------------------------------------------------------------------

    async def _repeat_renewal(self) -> None:
        while True:
            try:
                await self.renew()
                await asyncio.sleep(self._lease_ms / HEARTBEATS_PER_LEASE / 1000)
            except WriterDead:  # the writer has told the broker, which ends
                self._lease.lapse()
                return
            except MillpondError as error:
                logger.warning("lease renewal failed; will retry", extra={"error": str(error)})
                await asyncio.sleep(min(RETRY_S, self._lease_ms / HEARTBEATS_PER_LEASE / 1000))

    async def renew(self) -> None:
        """Through the commit queue, so that it also proves that commits still work. Alone, so that it does not fail
        with a flush that waits for what a paused broker has locked."""
        sent_at_ms = self._clock.monotonic_ms()

        def renew(tx: Transaction) -> list[str]:
            writers.renew(tx, self._session, self._lease_ms)
            return list(writers.expired_brokers(tx, self._session))

        expired = await self._log.write(renew, alone=True, always=True)
        self._lease.renewed(sent_at_ms)
        if expired and self._lease.is_steady:
            await self._replace([Session(each) for each in expired])
        elif expired:
            brokers = ",".join(str(self._number_of(session)) for session in expired)
            logger.info("takeover postponed; own lease renewal was late", extra={"brokers": brokers})

    def _number_of(self, session: str) -> int | str:
        """A broker's number; its session if it was never seen here."""
        member = self._log.topology.member(session)
        return member.node_id if member is not None else session

    async def _replace(self, expired: Sequence[Session]) -> None:
        def replace(tx: Transaction) -> list[str]:
            tx.cut_off(expired)
            buried = writers.bury_expired_brokers(tx, expired, self._clock.now_ms())
            if buried:
                topology.move(tx)
                topology.adopt(tx)
            return list(buried)

        buried = await self._log.write(replace, alone=True)
        for session in buried:
            self._metrics.buried.inc()
            logger.warning(
                "broker lease expired; taking over its partitions", extra={"broker": self._number_of(session)}
            )
        await self._log.refresh()
        self.tell_others()

    # -- sharing ----------------------------------------------------------------------------------------------

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
        """Give away what others have room for; how much that was. Looks only if something has changed since."""
        async with self._turn:
            given = 0
            while self._balanced != self._log.topology.version:
                version = self._log.topology.version
                step = await self._give_shards() + await self._give_partitions()
                given += step
                if step == 0:
                    self._balanced = version
            return given

    async def leave(self) -> None:
        """Hand everything over, if there is somebody to take it."""
        if self._log.topology.members.keys() <= {self._session}:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self._log.write(
                    lambda tx: topology.set_leaving(tx, self._session, leaving=True), alone=True
                )
                await self._log.refresh()
                await self.balance()
        except (MillpondError, TimeoutError) as error:
            logger.warning(
                "partitions not handed over before stop", extra={"error": str(error) or "timed out"}
            )

    def _receivers(self) -> list[str]:
        return [each.session for each in self._log.topology.members.values() if not each.leaving]

    def _shared(self) -> Mapping[TopicPartition, Owner]:
        """What is shared out: not what is halted here. Whoever got it would know of nothing, and go on writing."""
        owners = self._log.topology.partitions
        halted = {partition.where for partition in self._log.partitions() if partition.halted}
        return {where: each for where, each in owners.items() if where not in halted} if halted else owners

    async def _give_partitions(self) -> int:
        owners = self._shared()
        counts = Counter(owner.session or "" for owner in owners.values())
        if not has_too_many(counts, self._receivers(), self._session):
            return 0  # the usual case, and what should move between others takes long to work out
        wanted = moves(_by_session(owners), self._receivers(), family=topic_of)
        mine = [where for where in wanted if owners[where].session == self._session][:GIFTS_PER_STEP]
        if not mine:
            return 0
        gifts = {where: (owners[where].epoch, wanted[where]) for where in mine}
        began = self._clock.monotonic_ms()
        try:
            await self._let_go(mine)
            given: int = await self._log.write(lambda tx: _give(tx, self._session, gifts), alone=True)
            await self._told(given)
        finally:
            self._handover.done(mine)
        self._metrics.given.inc(given)
        logger.info(
            "partitions handed over",
            extra={"partitions": given, "duration_ms": self._clock.monotonic_ms() - began},
        )
        return given

    async def _let_go(self, wheres: Sequence[TopicPartition]) -> None:
        try:
            async with asyncio.timeout(HANDOVER_S):
                await self._handover.partitions(wheres)
        except TimeoutError:
            reason = f"{len(wheres)} partitions have not finished what they had taken within {HANDOVER_S:g} s"
            raise Unavailable(reason) from None

    async def _give_shards(self) -> int:
        owners = self._log.topology.shards
        wanted = moves(_by_session(owners), self._receivers())
        mine = [shard for shard in wanted if owners[shard].session == self._session]
        if not mine:
            return 0
        gifts = {shard: (owners[shard].epoch, wanted[shard]) for shard in mine}
        self._giving.update(mine)
        for shard in mine:
            self._shards.pop(shard, None)
        try:
            await self._handover.shards(mine)
            given: int = await self._log.write(lambda tx: _give_shards(tx, self._session, gifts), alone=True)
            await self._told(given)
        finally:
            self._giving.clear()
            self.take_in(self._log.topology)
        return given

    async def _told(self, given: int) -> None:
        await self._log.refresh()
        if given:
            self.tell_others()


def _by_session(owners: Mapping[Unit, Owner]) -> dict[Unit, str]:
    return {unit: owner.session or "" for unit, owner in owners.items()}


def _give(tx: Transaction, session: str, gifts: dict[TopicPartition, tuple[int, str]]) -> int:
    topology.move(tx)
    return topology.give(tx, session, gifts)


def _give_shards(tx: Transaction, session: str, gifts: dict[int, tuple[int, str]]) -> int:
    topology.move(tx)
    return topology.give_shards(tx, session, gifts)
