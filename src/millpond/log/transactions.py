"""The transaction coordinator: producer ids, and the steps of Kafka's transactions.

Each step is one commit that locks the coordinator shard of the transactional id, so only the broker that owns
the shard can perform it. Kafka's clients send two steps to other brokers: a partition's leader adds the
partition, and a group's coordinator adds the offsets. These steps lock the shard without owning it, in a
commit that holds no locks before. There is nothing to prepare and nothing to recover: the end of a
transaction writes its markers, moves its offsets and closes it in one commit. The log applies the result in
commit order, before any caller receives it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from millpond.catalog import coordinators, producers, transactions
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.groups import GroupOffset
from millpond.catalog.transactions import (
    ProducerEpoch,
    TransactionalProducer,
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
    """Maximum time a transaction may stay open, Kafka's `transaction.max.timeout.ms`."""
    id_block: int = 1_000
    """Number of producer ids reserved in the catalog at a time."""
    check_every_ms: int = 10_000
    """How often to look for transactions that have exceeded their timeout."""
    expire_every_ms: int = 10 * 60 * 1000
    """How often to look for unused transactional ids."""
    id_expiry_ms: int = 7 * DAY_MS
    """A transactional id unused for this long is removed, Kafka's `transactional.id.expiration.ms`."""


class Transactions:
    """Steps raise `ProducerFenced` for an epoch that is no longer the newest, `InvalidProducerIdMapping` for
    a producer that never held the transactional id, `InvalidTransactionState` for a step that the
    transaction's state does not allow, and `NotOwner` if another broker is the coordinator. Every step may be
    retried."""

    def __init__(
        self,
        log: Log,
        session: Session,
        epoch_of: Callable[[int], int | None],
        *,
        clock: Clock,
        limits: TransactionLimits,
        trusts_clock: Callable[[], bool] = lambda: True,
    ) -> None:
        """`epoch_of` returns the epoch under which this broker owns a coordinator shard; None if it does not. It may be
        called on any thread. `trusts_clock` returns whether anything may expire because of its age."""
        self._trusts_clock = trusts_clock
        self._log = log
        self._session = session
        self._epoch_of = epoch_of
        self._clock = clock
        self._limits = limits
        self._ids: Iterator[int] = iter(())
        self._ids_lock = asyncio.Lock()

    # -- producers --------------------------------------------------------------------------------------------

    async def new_producer_id(self) -> int:
        """A unique id for a producer that is idempotent but not transactional."""
        async with self._ids_lock:
            while (found := next(self._ids, None)) is None:
                start = await self._log.write(lambda tx: producers.take_ids(tx, self._limits.id_block).start)
                self._ids = iter(range(start, start + self._limits.id_block))
        return found

    async def begin_producer(
        self, transactional_id: str, timeout_ms: int, known: ProducerEpoch | None = None
    ) -> TransactionalProducer:
        """Start a new epoch for this transactional id; a transaction that its previous holder left open is
        aborted. With `known`, only if `known` is still the holder (see
        `catalog.transactions.begin_producer`)."""
        if not transactional_id:
            raise InvalidRequest(reason="a transactional id cannot be empty")
        if not 0 < timeout_ms <= self._limits.timeout_max_ms:
            raise InvalidTransactionTimeout(timeout_ms=timeout_ms, max_ms=self._limits.timeout_max_ms)
        now_ms = self._clock.now_ms()

        def begin(tx: CatalogTransaction) -> Transition:
            return transactions.begin_producer(tx, transactional_id, timeout_ms, now_ms=now_ms, known=known)

        transition = await self._step(transactional_id, begin)
        assert transition is not None, "a producer always begins"
        return transition.producer

    # -- transactions -----------------------------------------------------------------------------------------

    async def add_partitions(
        self, producer: TransactionalProducer, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        """Open the producer's transaction, and let it write to these partitions."""
        await self._add_partitions(
            producer, topic_partitions, lambda tx: self._hold(tx, producer.transactional_id)
        )

    async def ensure_partitions(
        self, producer: TransactionalProducer, topic_partitions: Sequence[TopicPartition]
    ) -> None:
        """Add the partitions that are not known to be part of the open transaction; usually all of them are.
        For producers that get a new epoch with each transaction, so that an old transaction is never mistaken
        for the current one. Called by the partitions' owner, which need not be the transaction's
        coordinator."""
        missing = [
            topic_partition
            for topic_partition in topic_partitions
            if not self._log.partition(topic_partition).open_transactions.includes(*producer.identity)
        ]
        shard = coordinators.shard_of(producer.transactional_id)
        if missing:
            await self._add_partitions(producer, missing, lambda tx: coordinators.lock(tx, shard))

    async def partitions_of(self, producer: TransactionalProducer) -> list[TopicPartition]:
        """The partitions of the producer's open transaction."""
        return await self._log.read(lambda tx: transactions.partitions_of(tx, producer))

    async def add_group(self, producer: TransactionalProducer, group_id: str) -> None:
        """Open the transaction, which will receive offsets of this group. The offsets themselves name their
        groups."""
        now_ms = self._clock.now_ms()

        def add(tx: CatalogTransaction) -> None:
            self._hold(tx, producer.transactional_id)
            transactions.open_transaction(tx, producer, now_ms=now_ms)

        await self._log.write(add)

    async def add_offsets(
        self,
        producer: TransactionalProducer,
        group_id: str,
        offsets: Sequence[GroupOffset],
        *,
        opens: bool = False,
    ) -> None:
        """Add offsets that are committed to the group when the transaction commits. `opens` as in
        `catalog.transactions`. Called by the group's coordinator, which need not be the transaction's
        coordinator."""
        now_ms = self._clock.now_ms()

        def add(tx: CatalogTransaction) -> None:
            self._hold_group(tx, group_id, producer.transactional_id)
            transactions.add_offsets(tx, producer, group_id, offsets, now_ms=now_ms, opens=opens)

        await self._log.write(add, own_commit=not self._is_ours(producer))

    async def end(
        self, producer: TransactionalProducer, *, commit: bool, bump_epoch: bool
    ) -> TransactionalProducer:
        """Commit or abort; returns the producer, with a new epoch if `bump_epoch` is set."""
        now_ms = self._clock.now_ms()

        def end(tx: CatalogTransaction) -> Transition:
            return transactions.end(tx, producer, commit=commit, bump_epoch=bump_epoch, now_ms=now_ms)

        transition = await self._step(producer.transactional_id, end)
        assert transition is not None, "an end ends or raises"
        return transition.producer

    # -- the service ------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Abort timed-out transactions and remove unused transactional ids, until cancelled."""
        async with asyncio.TaskGroup() as duties:
            duties.create_task(_repeat(self.abort_timed_out, self._limits.check_every_ms))
            duties.create_task(_repeat(self.forget_unused, self._limits.expire_every_ms))

    async def abort_timed_out(self) -> int:
        """Abort the transactions of this broker's shards that exceeded their timeout; returns how many."""
        if not self._trusts_clock():
            return 0
        now_ms = self._clock.now_ms()
        late = await self._log.read(lambda tx: transactions.timed_out(tx, now_ms=now_ms))
        return sum([await self._abort_late(producer, now_ms) for producer in late if self._is_ours(producer)])

    async def forget_unused(self) -> int:
        """Remove the transactional ids of this broker's shards unused for `id_expiry_ms`; returns how many."""
        if not self._trusts_clock():
            return 0
        since_ms = self._clock.now_ms() - self._limits.id_expiry_ms
        unused = await self._log.read(lambda tx: transactions.unused(tx, unused_since_ms=since_ms))
        ours = [each for each in unused if self.coordinates(each)]
        return sum([await self._forget(transactional_id, since_ms) for transactional_id in ours])

    async def _abort_late(self, producer: TransactionalProducer, now_ms: int) -> bool:
        def abort(tx: CatalogTransaction) -> Transition | None:
            return transactions.abort_timed_out(tx, producer, now_ms=now_ms)

        aborted = await self._step(producer.transactional_id, abort) is not None
        if aborted:
            logger.info(
                "transaction timed out; aborted", extra={"transactional_id": producer.transactional_id}
            )
        return aborted

    async def _forget(self, transactional_id: str, since_ms: int) -> bool:
        def forget(tx: CatalogTransaction) -> bool:
            self._hold(tx, transactional_id)
            return transactions.forget(tx, transactional_id, unused_since_ms=since_ms)

        forgotten: bool = await self._log.write(forget)
        return forgotten

    def coordinates(self, transactional_id: str) -> bool:
        """Whether this broker is the coordinator. May be called on any thread."""
        return self._epoch_of(coordinators.shard_of(transactional_id)) is not None

    # -- inside -----------------------------------------------------------------------------------------------

    async def _add_partitions(
        self,
        producer: TransactionalProducer,
        topic_partitions: Sequence[TopicPartition],
        hold: Callable[[CatalogTransaction], None],
    ) -> None:
        now_ms = self._clock.now_ms()

        def add(tx: CatalogTransaction) -> None:
            hold(tx)
            transactions.add_partitions(tx, producer, topic_partitions, now_ms=now_ms)

        own_commit = not self._is_ours(producer)
        await self._log.write(
            add, lambda _: self._log.apply_added_partitions(producer, topic_partitions), own_commit=own_commit
        )

    def _hold_group(self, tx: CatalogTransaction, group_id: str, transactional_id: str) -> None:
        """Lock in the order of shard numbers: another broker may lock the same two shards, in opposite roles."""
        group, transaction = coordinators.shard_of(group_id), coordinators.shard_of(transactional_id)
        for shard in sorted({group, transaction}):
            if shard == group:
                self._hold(tx, group_id)
            else:
                coordinators.lock(tx, shard)

    def _is_ours(self, producer: TransactionalProducer) -> bool:
        return self.coordinates(producer.transactional_id)

    def _hold(self, tx: CatalogTransaction, transactional_id: str) -> None:
        """Runs on the writer thread."""
        shard = coordinators.shard_of(transactional_id)
        epoch = self._epoch_of(shard)
        if epoch is None:
            raise NotOwner(f"Coordinator shard {shard} belongs to another broker.")
        coordinators.hold(tx, shard, self._session, epoch)

    async def _step(
        self, transactional_id: str, act: Callable[[CatalogTransaction], Transition | None]
    ) -> Transition | None:
        """Perform one commit. The step's outcome passes through JSON, because it is stored with the commit
        until it is known here. The log applies the markers even if the caller is gone by then."""

        def operation(tx: CatalogTransaction) -> object:
            self._hold(tx, transactional_id)
            transition = act(tx)
            return None if transition is None else encode_transition(transition)

        def apply(encoded: object) -> Transition | None:
            transition = None if encoded is None else decode_transition(encoded)
            if transition is not None and transition.markers is not None:
                self._log.apply_markers(transition.markers)
            return transition

        transition: Transition | None = await self._log.write(operation, apply)
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
                extra={"duty": duty.__name__, "error": error},
            )
