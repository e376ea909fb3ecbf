"""What is settled in a partition of a subscription, and which changes are to be stored next.

A commit runs between `begin` and `end`; changes made during that time are part of the next commit.
"""

from collections.abc import Mapping

from millpond.queues.dispatcher_results import Dead, FailingMessage, Retry, StateChanges
from millpond.queues.dispatcher_state import (
    ACKED,
    LEASED,
    READY,
    SETTLING,
    SettleReason,
    TrackedMessage,
    waits_for,
)
from millpond.queues.failure_reasons import FailureReasons
from millpond.queues.limits import ReasonLimits
from millpond.queues.settled_offsets import OffsetRange, SettledOffsets


class UnsavedChanges:
    def __init__(
        self,
        floor: int,
        chunks: Mapping[int, bytes] | None,
        retries: Mapping[int, Retry] | None,
        reasons: ReasonLimits,
    ) -> None:
        self.settled = SettledOffsets(floor, chunks)
        self.retries = dict(retries or {})
        """Retries of messages that are not tracked yet."""
        self.decided: list[TrackedMessage] = []
        """Messages that are SETTLING and in no commit yet."""
        self.failed: dict[int, TrackedMessage] = {}
        """Messages whose attempts or delay have changed since the last commit."""
        self.reasons = FailureReasons(reasons, self.retries)
        self._forgotten: list[int] = []
        """Offsets whose stored retry is to be removed."""
        self._voids: list[OffsetRange] = []
        self._batch: StateChanges | None = None

    @property
    def is_dirty(self) -> bool:
        return bool(self._batch or self.decided or self.failed or self._voids or self._forgotten)

    def forget_retry(self, offset: int) -> None:
        """Remove the stored retry and the reasons of a message, tracked or not."""
        self.retries.pop(offset, None)
        self.failed.pop(offset, None)
        self.reasons.forget(offset)
        self._forgotten.append(offset)

    def void(self, start: int, end: int) -> None:
        """Settle these offsets as void: they are not messages, or are gone from the log."""
        if self.retries:
            is_narrow = end - start <= len(self.retries)
            for offset in range(start, end) if is_narrow else list(self.retries):
                if start <= offset < end and offset in self.retries:
                    self.forget_retry(offset)
        if self._voids and self._voids[-1][1] == start:
            self._voids[-1] = (self._voids[-1][0], end)
        else:
            self._voids.append((start, end))

    def begin(self) -> StateChanges | None:
        """Returns the changes to store, and the same object again until `end` is called; None if there are none."""
        if self._batch is None and self.is_dirty:
            decided, self.decided = self.decided, []
            failed, self.failed = self.failed, {}
            voids, self._voids = self._voids, []
            forgotten, self._forgotten = self._forgotten, []
            retries = {
                offset: Retry(message.attempts, message.not_before, self.reasons.of(offset))
                for offset, message in failed.items()
                if message.state is not SETTLING
            }
            forgotten += [message.offset for message in decided if message.attempts]
            self._batch = StateChanges(
                settled=self.settled.plan([message.offset for message in decided], voids),
                retries=retries,
                forgotten=[offset for offset in forgotten if offset not in retries],
                dead=[self._dead(message) for message in decided if message.settle_reason is not ACKED],
                messages=decided,
            )
            for message in decided:
                if message.attempts:
                    self.reasons.forget(message.offset)
        return self._batch

    def _dead(self, message: TrackedMessage) -> Dead:
        offset, is_dropped = message.offset, message.settle_reason is SettleReason.DROPPED
        return Dead(offset, message.attempts, is_dropped, self.reasons.of(offset))

    def failing(self, count: int, messages: Mapping[int, TrackedMessage], now: int) -> list[FailingMessage]:
        """The first messages that have failed. `messages` are those that are tracked."""
        return [self._failing(offset, messages.get(offset), now) for offset in self.reasons.first(count)]

    def _failing(self, offset: int, message: TrackedMessage | None, now: int) -> FailingMessage:
        reasons = self.reasons.of(offset)
        if message is None:
            attempts, not_before, _ = self.retries[offset]
        else:
            attempts, not_before = message.attempts, message.not_before
        if message is not None and message.state is not READY:
            why = "leased" if message.state is LEASED else "settling"
            return FailingMessage(offset, attempts, why, 0, reasons)
        why, until = waits_for(not_before, now)
        return FailingMessage(offset, attempts, why, until, reasons)

    def end(self) -> StateChanges:
        """The changes that `begin` returned are durable."""
        assert self._batch is not None, "begin comes first"
        batch, self._batch = self._batch, None
        self.settled.apply(batch.settled)
        return batch
