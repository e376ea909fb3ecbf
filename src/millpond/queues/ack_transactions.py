"""Commits acknowledgements and new messages together: exactly-once consume and produce, from topic to topic.

Everything is checked first. From then on the commit is applied in full or, if this broker loses the partition or dies,
not at all. While the catalog or the store is unavailable, the write is attempted up to `TRIES_MAX` times. If it fails
for good (for example because a topic was deleted) or its outcome is unknown, the partitions' queues are closed; their
state is loaded from the catalog again and their open messages are redelivered.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence

from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.subscriptions import StateSave
from millpond.log import AppendResult, AppendRole
from millpond.model.errors import (
    NotOwner,
    OutcomeUnknown,
    Stopping,
    SubscriptionReplaced,
    Unavailable,
)
from millpond.model.ids import TopicPartition
from millpond.queues.ackids import AckId
from millpond.queues.attachment import Attachment
from millpond.queues.dispatcher_results import AckResult
from millpond.queues.partition_queue import PartitionQueue
from millpond.queues.saver import close_queues_with_dead_letters
from millpond.records import Buffer

RETRY_DELAY_S = 0.05
TRIES_MAX = 8
logger = logging.getLogger(__name__)

Resolved = tuple[PartitionQueue, AckId]
CommitOutcome = tuple[list[AckResult], Mapping[TopicPartition, AppendResult]]


async def commit(
    log: AppendRole,
    attachment: Attachment,
    ack_ids: Sequence[bytes],
    appends: Mapping[TopicPartition, Buffer],
) -> CommitOutcome:
    """Returns one result for each id, and the offsets of the messages. If any result is not OK, nothing was changed."""
    resolved = [attachment.resolve(ack_id) for ack_id in ack_ids]
    queues = sorted(
        {queue for queue, _ in filter(None, resolved)}, key=lambda queue: queue.state_key.partition
    )
    async with contextlib.AsyncExitStack() as locks:
        for queue in queues:
            await locks.enter_async_context(queue.saves.lock)
        doing = asyncio.ensure_future(_commit_locked(locks.pop_all(), log, queues, resolved, appends))
    return await asyncio.shield(doing)


async def _commit_locked(
    locks: contextlib.AsyncExitStack,
    log: AppendRole,
    queues: Sequence[PartitionQueue],
    resolved: Sequence[Resolved | None],
    appends: Mapping[TopicPartition, Buffer],
) -> CommitOutcome:
    """Runs to its end even if the caller is cancelled: until then nothing else may save state of these partitions."""
    async with locks:
        await _save_earlier(log, queues)
        results = [result_of(each) for each in resolved]
        if any(result is not AckResult.OK for result in results):
            return results, {}
        for log_partition, data in appends.items():
            log.check_joint(log_partition, data)
        for queue, ack_id in filter(None, resolved):
            queue.dispatcher.ack(ack_id.offset, ack_id.epoch, ack_id.token)
        return results, await _do(log, queues, appends)


def result_of(resolved: Resolved | None) -> AckResult:
    if resolved is None:
        return AckResult.UNKNOWN
    queue, ack_id = resolved
    if queue.closed is not None:
        return AckResult.NOT_OWNER
    return queue.dispatcher.check(ack_id.offset, ack_id.epoch, ack_id.token)


async def _save_earlier(log: AppendRole, queues: Sequence[PartitionQueue]) -> None:
    """Save earlier acknowledgements that are not saved yet."""
    for queue in queues:
        if queue.saves.has_unsaved and (save := await queue.saves.begin()) is not None:
            await _save_one(log, queue, save)


async def _save_one(log: AppendRole, queue: PartitionQueue, save: StateSave) -> None:
    try:
        held: list[bool] = await log.write(lambda tx: catalog.save(tx, [save]))
    except OutcomeUnknown:
        close_queues_with_dead_letters([(queue, save)])
        raise
    if held[0]:
        queue.saves.end()
    else:
        queue.close(NotOwner())


async def _do(
    log: AppendRole, queues: Sequence[PartitionQueue], appends: Mapping[TopicPartition, Buffer]
) -> Mapping[TopicPartition, AppendResult]:
    try:
        saves = [await _begun(queue) for queue in queues]
        placed = await _write(log, saves, appends)
    except BaseException:  # after any error, these acknowledgements must not be saved without the messages
        for queue in queues:
            queue.close(SubscriptionReplaced(subscription=queue.subscription.name))
        raise
    for queue in queues:
        queue.saves.end()
    return placed


async def _begun(queue: PartitionQueue) -> StateSave:
    save = await queue.saves.begin()
    if save is None:  # it has been closed
        raise NotOwner
    return save


async def _write(
    log: AppendRole, saves: Sequence[StateSave], appends: Mapping[TopicPartition, Buffer]
) -> Mapping[TopicPartition, AppendResult]:
    def save(tx: CatalogTransaction) -> None:
        if not all(catalog.save(tx, saves)):
            raise NotOwner

    for attempt in range(TRIES_MAX):
        try:
            if appends:
                return await log.append_jointly(appends, save)
            await log.write(save)
            return {}
        except (OutcomeUnknown, Stopping):
            raise
        except Unavailable as error:
            logger.warning(
                "committing a subscription transaction failed",
                extra={"attempt": attempt + 1, "error": str(error)},
            )
            if attempt == TRIES_MAX - 1:
                raise
            await asyncio.sleep(RETRY_DELAY_S * 2**attempt)
    raise AssertionError("unreachable: the last try returns or raises")
