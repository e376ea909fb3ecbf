"""The transaction coordinator: producer ids, and the steps of Kafka's transactions.

Each step is one commit, which holds the coordinator shard of the transactional id, so that of two brokers only
the one that owns the shard can take it. Two come to others, as Kafka's clients send them: a partition joins at its
leader, offsets come to their group's coordinator; these lock the shard, in a commit that has locked nothing before.
There is nothing to prepare and nothing to recover: an end writes its markers, moves its offsets and closes the
transaction at once. What it wrote is taken in by the log in the order of commits, before anybody hears of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from millpond.catalog import coordinators, producers, transactions
from millpond.catalog.database import Transaction
from millpond.catalog.groups import GroupOffset
from millpond.catalog.transactions import (
    Producer,
    ProducerEpoch,
    Transition,
    decode_transition,
    encode_transition,
)
from millpond.log.log import Log
from millpond.model.clock import Clock
from millpond.model.errors import InvalidRequest, InvalidTransactionTimeout, MillpondError, NotOwner
from millpond.model.ids import Session, TopicPartition

DAY_MS = 86_400_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    timeout_max_ms: int = 15 * 60 * 1000
    """The longest a transaction may stay open, Kafka's `transaction.max.timeout.ms`."""
    id_block: int = 1_000
    """Producer ids taken from the catalog at once."""
    check_every_ms: int = 10_000
    """How often transactions are looked at for those that are late."""
    expire_every_ms: int = 10 * 60 * 1000
    """How often transactional ids are looked at for those that nobody uses."""
    id_expiry_ms: int = 7 * DAY_MS
    """A transactional id unused for so long is forgotten, Kafka's `transactional.id.expiration.ms`."""


class Transactions:
    """Steps raise `ProducerFenced` for an epoch that is no longer the newest, `InvalidProducerIdMapping` for a
    producer that never held the transactional id, `InvalidTransactionState` for a step that does not fit, and
    `NotOwner` if another broker coordinates it. Every step may be repeated."""

    def __init__(
        self,
        log: Log,
        session: Session,
        epochs: Mapping[int, int],
        *,
        clock: Clock,
        limits: TransactionLimits,
        trusts_clock: Callable[[], bool] = lambda: True,
    ) -> None:
        """`trusts_clock` says whether anything may be given up because of its age."""
        self._trusts_clock = trusts_clock
        self._log = log
        self._session = session
        self._epochs = epochs
        self._clock = clock
        self._limits = limits
        self._ids: Iterator[int] = iter(())
        self._ids_turn = asyncio.Lock()

    # -- producers --------------------------------------------------------------------------------------------

    async def new_producer_id(self) -> int:
        """An id that nobody else gets, for a producer that is idempotent but not transactional."""
        async with self._ids_turn:
            while (found := next(self._ids, None)) is None:
                start = await self._log.write(lambda tx: producers.take_ids(tx, self._limits.id_block).start)
                self._ids = iter(range(start, start + self._limits.id_block))
        return found

    async def begin_producer(
        self, transactional_id: str, timeout_ms: int, known: ProducerEpoch | None = None
    ) -> Producer:
        """A new epoch for this transactional id; what its former holder left open is aborted. With `known`, only
        if that is still the holder (see `catalog.transactions.begin_producer`)."""
        if not transactional_id:
            raise InvalidRequest(reason="a transactional id cannot be empty")
        if not 0 < timeout_ms <= self._limits.timeout_max_ms:
            raise InvalidTransactionTimeout(timeout_ms=timeout_ms, max_ms=self._limits.timeout_max_ms)
        now_ms = self._clock.now_ms()

        def begin(tx: Transaction) -> Transition:
            return transactions.begin_producer(tx, transactional_id, timeout_ms, now_ms=now_ms, known=known)

        transition = await self._step(transactional_id, begin)
        assert transition is not None, "a producer always begins"
        return transition.producer

    # -- transactions -----------------------------------------------------------------------------------------

    async def add_partitions(self, producer: Producer, wheres: Sequence[TopicPartition]) -> None:
        """The producer's transaction is open from here on, and may write to these partitions."""
        await self._add_partitions(producer, wheres, lambda tx: self._hold(tx, producer.transactional_id))

    async def ensure_partitions(self, producer: Producer, wheres: Sequence[TopicPartition]) -> None:
        """Add the partitions that are not known to be part of the open transaction; usually all of them are. For
        producers that get a new epoch with each transaction: an old transaction is never taken for this one. Called
        by the partitions' owner, whoever coordinates the transaction."""
        missing = [
            where for where in wheres if not self._log.partition(where).ongoing.includes(*producer.identity)
        ]
        shard = coordinators.shard_of(producer.transactional_id)
        if missing:
            await self._add_partitions(producer, missing, lambda tx: coordinators.lock(tx, shard))

    async def partitions_of(self, producer: Producer) -> list[TopicPartition]:
        """The partitions of the producer's open transaction."""
        return await self._log.read(lambda tx: transactions.partitions_of(tx, producer))

    async def add_group(self, producer: Producer, group_id: str) -> None:
        """The transaction will have offsets of this group. Which groups those are is seen when they come."""
        now_ms = self._clock.now_ms()

        def add(tx: Transaction) -> None:
            self._hold(tx, producer.transactional_id)
            transactions.open_transaction(tx, producer, now_ms=now_ms)

        await self._log.write(add)

    async def add_offsets(
        self, producer: Producer, group_id: str, offsets: Sequence[GroupOffset], *, opens: bool = False
    ) -> None:
        """Offsets that become the group's when the transaction commits. `opens` as in `catalog.transactions`. Called
        by the group's coordinator, whoever coordinates the transaction."""
        now_ms = self._clock.now_ms()

        def add(tx: Transaction) -> None:
            self._hold_group(tx, group_id, producer.transactional_id)
            transactions.add_offsets(tx, producer, group_id, offsets, now_ms=now_ms, opens=opens)

        await self._log.write(add, alone=not self._is_ours(producer))

    async def end(self, producer: Producer, *, commit: bool, bump_epoch: bool) -> Producer:
        """Commit or abort; returns the producer as it goes on, under a new epoch if it asked for one."""
        now_ms = self._clock.now_ms()

        def end(tx: Transaction) -> Transition:
            return transactions.end(tx, producer, commit=commit, bump_epoch=bump_epoch, now_ms=now_ms)

        transition = await self._step(producer.transactional_id, end)
        assert transition is not None, "an end ends or raises"
        return transition.producer

    # -- the service ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Abort what is late and forget what is unused, until cancelled."""
        async with asyncio.TaskGroup() as duties:
            duties.create_task(_repeat(self.abort_timed_out, self._limits.check_every_ms))
            duties.create_task(_repeat(self.forget_unused, self._limits.expire_every_ms))

    async def abort_timed_out(self) -> int:
        """Abort the transactions of our shards that are open for longer than they may; returns how many."""
        if not self._trusts_clock():
            return 0
        now_ms = self._clock.now_ms()
        late = await self._log.read(lambda tx: transactions.timed_out(tx, now_ms=now_ms))
        return sum([await self._abort_late(producer, now_ms) for producer in late if self._is_ours(producer)])

    async def forget_unused(self) -> int:
        """Forget the transactional ids of our shards that have not been used for long; returns how many."""
        if not self._trusts_clock():
            return 0
        since_ms = self._clock.now_ms() - self._limits.id_expiry_ms
        unused = await self._log.read(lambda tx: transactions.unused(tx, unused_since_ms=since_ms))
        ours = [each for each in unused if coordinators.shard_of(each) in self._epochs]
        return sum([await self._forget(transactional_id, since_ms) for transactional_id in ours])

    async def _abort_late(self, producer: Producer, now_ms: int) -> bool:
        def abort(tx: Transaction) -> Transition | None:
            return transactions.abort_timed_out(tx, producer, now_ms=now_ms)

        aborted = await self._step(producer.transactional_id, abort) is not None
        if aborted:
            logger.info(
                "transaction timed out; aborted", extra={"transactional_id": producer.transactional_id}
            )
        return aborted

    async def _forget(self, transactional_id: str, since_ms: int) -> bool:
        def forget(tx: Transaction) -> bool:
            self._hold(tx, transactional_id)
            return transactions.forget(tx, transactional_id, unused_since_ms=since_ms)

        forgotten: bool = await self._log.write(forget)
        return forgotten

    # -- inside -----------------------------------------------------------------------------------------------

    async def _add_partitions(
        self, producer: Producer, wheres: Sequence[TopicPartition], hold: Callable[[Transaction], None]
    ) -> None:
        now_ms = self._clock.now_ms()

        def add(tx: Transaction) -> None:
            hold(tx)
            transactions.add_partitions(tx, producer, wheres, now_ms=now_ms)

        alone = not self._is_ours(producer)
        await self._log.write(add, lambda _: self._log.take_in_added(producer, wheres), alone=alone)

    def _hold_group(self, tx: Transaction, group_id: str, transactional_id: str) -> None:
        """In the order of shards, since others may do the same the other way round."""
        group, transaction = coordinators.shard_of(group_id), coordinators.shard_of(transactional_id)
        for shard in sorted({group, transaction}):
            if shard == group:
                self._hold(tx, group_id)
            else:
                coordinators.lock(tx, shard)

    def _is_ours(self, producer: Producer) -> bool:
        return coordinators.shard_of(producer.transactional_id) in self._epochs

    def _hold(self, tx: Transaction, transactional_id: str) -> None:
        """On the writer's thread: the shard may be given away between two looks at it."""
        shard = coordinators.shard_of(transactional_id)
        epoch = self._epochs.get(shard) if shard in self._epochs else None
        if epoch is None:
            raise NotOwner(f"Coordinator shard {shard} belongs to another broker.")
        coordinators.hold(tx, shard, self._session, epoch)

    async def _step(
        self, transactional_id: str, act: Callable[[Transaction], Transition | None]
    ) -> Transition | None:
        """One commit. The step's outcome goes through JSON, since it is stored with the commit until it has been
        heard; whoever asked may be gone by then, but the log takes the markers in all the same."""

        def operation(tx: Transaction) -> object:
            self._hold(tx, transactional_id)
            transition = act(tx)
            return None if transition is None else encode_transition(transition)

        def take_in(encoded: object) -> Transition | None:
            transition = None if encoded is None else decode_transition(encoded)
            if transition is not None and transition.markers is not None:
                self._log.take_in_markers(transition.markers)
            return transition

        transition: Transition | None = await self._log.write(operation, take_in)
        return transition


async def _repeat(duty: Callable[[], Awaitable[int]], every_ms: int) -> None:
    while True:
        await asyncio.sleep(every_ms / 1000)
        try:
            await duty()
        except MillpondError as error:
            logger.warning(
                "transaction maintenance failed; will retry",
                extra={"duty": duty.__name__, "error": str(error)},
            )
        except Exception as error:  # a bug in one pass must not end the service
            logger.exception(
                "unexpected error in transaction maintenance; will retry",
                extra={"duty": duty.__name__, "error": repr(error)},
            )
