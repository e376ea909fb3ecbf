"""Saves changes of dispatchers, one commit at a time for all partitions that have changes.

While one commit is in flight the next one fills, so a single acknowledgement is durable in about a millisecond, and
under load thousands share a commit. A save that the catalog cannot take now is retried unchanged; a partition that
another broker has taken is closed. A partition whose dead letters must be read first is saved separately, so that a
slow or unavailable store does not delay the others.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack

from millpond.catalog import subscriptions as catalog
from millpond.catalog.subscriptions import StateSave
from millpond.log import CatalogRole
from millpond.model.errors import (
    Defect,
    MillpondError,
    NotOwner,
    OutcomeUnknown,
    Stopping,
    SubscriptionReplaced,
    Unavailable,
)
from millpond.observability.metrics import QueueMetrics
from millpond.queues.limits import QueueLimits
from millpond.queues.partition_queue import PartitionQueue

PAUSE_MAX_S = 5.0
LOCK_RETRY_S = 0.001
"""Delay before checking again whether a transaction has released a partition."""
logger = logging.getLogger(__name__)


class Saver:
    def __init__(
        self, log: CatalogRole, limits: QueueLimits, on_letters: Callable[[], None], metrics: QueueMetrics
    ) -> None:
        self._log = log
        self._pause_s = limits.save_again_ms / 1000
        self._on_letters = on_letters
        self._metrics = metrics
        self._dirty: dict[PartitionQueue, None] = {}
        self._running: asyncio.Task[None] | None = None
        self._separate_saves: dict[PartitionQueue, asyncio.Task[None]] = {}
        """Partitions that are saved separately; each checks for further changes when it is done."""

    def mark(self, queue: PartitionQueue) -> None:
        if queue in self._separate_saves:
            return
        self._dirty[queue] = None
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())

    async def drain(self) -> None:
        """Wait until all changes are saved, or have failed."""
        while busy := [
            task for task in (self._running, *self._separate_saves.values()) if task and not task.done()
        ]:
            await asyncio.wait(busy)

    async def _run(self) -> None:
        pause_s = self._pause_s
        while self._dirty:
            queues = self._take_free()
            if not queues:
                await asyncio.sleep(LOCK_RETRY_S)
            elif await self._save(queues):
                pause_s = self._pause_s
            else:
                self._dirty.update(dict.fromkeys(queue for queue in queues if queue.closed is None))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _take_free(self) -> list[PartitionQueue]:
        """The partitions to be saved together now. Starts a separate save for those that need dead letters."""
        free = [queue for queue in self._dirty if queue.saves.lock.is_free]
        together = []
        for queue in free:
            del self._dirty[queue]
            if _needs_letters(queue):
                self._separate_saves[queue] = asyncio.create_task(self._save_separately(queue))
            else:
                together.append(queue)
        return together

    async def _save_separately(self, queue: PartitionQueue) -> None:
        pause_s = self._pause_s
        while not await self._save([queue]):
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        del self._separate_saves[queue]
        if queue.closed is None and queue.dispatcher.is_dirty:
            self.mark(queue)

    async def _save(self, queues: list[PartitionQueue]) -> bool:
        """Returns False if the save must be retried."""
        saves: list[tuple[PartitionQueue, StateSave]] = []
        async with AsyncExitStack() as locks:
            for queue in queues:
                await locks.enter_async_context(queue.saves.lock)
            try:
                saves = [(queue, save) for queue in queues if (save := await queue.saves.begin()) is not None]
                if saves:
                    await self._write(saves)
            except OutcomeUnknown as error:
                logger.warning(
                    "saving acknowledgements failed; will retry",
                    extra={"partitions": len(queues), "error": str(error)},
                )
                close_queues_with_dead_letters(saves)
                return False
            except Stopping as error:
                return _close(queues, error)
            except Unavailable as error:
                logger.warning(
                    "saving acknowledgements failed; will retry",
                    extra={"partitions": len(queues), "error": str(error)},
                )
                return False
            except MillpondError as error:
                return _close(queues, error)
            except Exception as error:  # a bug must detach the consumers, not leave them waiting
                logger.exception(
                    "unexpected error while saving acknowledgements; detaching consumers",
                    extra={"partitions": len(queues), "error": error},
                )
                return _close(queues, Defect(reason=repr(error)))
        return True

    async def _write(self, saves: list[tuple[PartitionQueue, StateSave]]) -> None:
        held: list[bool] = await self._log.write(lambda tx: catalog.save(tx, [save for _, save in saves]))
        self._metrics.saves.inc()
        for (queue, save), is_held in zip(saves, held, strict=True):
            if not is_held:
                queue.close(NotOwner())
                continue
            queue.saves.end()
            if save.dead:
                self._on_letters()
            if queue.dispatcher.is_dirty:
                self.mark(queue)


def close_queues_with_dead_letters(saves: list[tuple[PartitionQueue, StateSave]]) -> None:
    """Close queues whose save has an unknown outcome and contains dead letters. If the letters were saved, another task
    may already have moved them to their topic; saving them again would duplicate them. The next queue of the partition
    loads the stored state."""
    for queue, save in saves:
        if save.dead:
            queue.close(SubscriptionReplaced(subscription=queue.subscription.name))


def _needs_letters(queue: PartitionQueue) -> bool:
    try:
        return queue.saves.needs_letters
    except Exception as error:  # a bug must detach this queue's consumers only
        logger.exception(
            "unexpected error in subscription state; detaching consumers",
            extra={
                "topic": queue.topic,
                "subscription": queue.subscription.name,
                "partition": queue.topic_partition.partition,
                "error": error,
            },
        )
        queue.close(Defect(reason=repr(error)))
        return False


def _close(queues: list[PartitionQueue], error: MillpondError) -> bool:
    for queue in queues:
        queue.close(error)
    return True
