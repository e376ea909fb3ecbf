"""Delivers the messages of one subscription partition to its consumers, and applies their nacks and extensions.

The dispatcher decides who receives which message. A message that is not held in memory is read again first; what
changed during that read (a nack, a consumer that left) is respected when the message is handed out. An ack needs
nothing from here: `Attachment` calls the dispatcher. A member of a share group asks for messages with `acquire`; it has
no credit in between, so nothing is delivered to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from millpond.model.errors import MillpondError
from millpond.observability.metrics import QueueMetrics
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_results import AckResult, QueueDelivery, Revoked
from millpond.queues.dispatcher_state import ConsumerCredit
from millpond.queues.feed import size_of
from millpond.queues.limits import QueueLimits
from millpond.queues.read_ahead import ReadAhead
from millpond.records import Record


class Delivered(NamedTuple):
    delivery: QueueDelivery
    record: Record


class Acquired(NamedTuple):
    """What `acquire` has leased, in log order, and its size."""

    deliveries: Sequence[QueueDelivery]
    size: int


NOTHING: Final = Acquired((), 0)
READY_MIN: Final = 1_000
"""While members of share groups acquire messages, the log is read until this many are ready."""


class Receiver(Protocol):
    """A consumer as its partitions see it. Calls return nothing: the consumer has room for all that it granted credit
    for. `epoch` is that of the partition's dispatcher."""

    def deliver(self, partition: int, epoch: int, deliveries: Sequence[Delivered]) -> None: ...

    def revoke(self, partition: int, epoch: int, revoked: Sequence[Revoked]) -> None: ...

    def on_partition_lost(self, partition: int, error: MillpondError) -> None: ...

    def on_credit_returned(self) -> None: ...

    def on_available(self) -> None: ...


class Deliverer:
    """Only the task of the partition calls `deliver_due`; everything else may be called while it waits.
    Calls that may let the dispatcher deliver more call `wake`. State changes only between awaits."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        read_ahead: ReadAhead,
        partition: int,
        *,
        now: Callable[[], int],
        log_start: Callable[[], int],
        wake: Callable[[], None],
        limits: QueueLimits,
        metrics: QueueMetrics,
    ) -> None:
        self._dispatcher = dispatcher
        self._read_ahead = read_ahead
        self._partition = partition
        self._now = now
        self._log_start = log_start
        self._wake = wake
        self._limits = limits
        self._metrics = metrics
        self._receivers: dict[str, Receiver] = {}
        self._is_closed = False
        self._unserved: set[str] = set()
        """Consumers that asked for messages and wait for some."""
        self._reads_ahead = False

    # -- consumers --------------------------------------------------------------------------------------------

    def attach(self, name: str, receiver: Receiver, consumer_credit: ConsumerCredit) -> None:
        self._receivers[name] = receiver
        self._dispatcher.consumers.attach(name, consumer_credit)
        self._wake()

    def detach(self, name: str, *, graceful: bool) -> None:
        self._unserved.discard(name)
        if self._receivers.pop(name, None) is not None:
            self._dispatcher.detach(name, self._now(), graceful=graceful)
            self._wake()

    @property
    def consumers(self) -> Sequence[str]:
        return list(self._receivers)

    def mark_alive(self, name: str) -> None:
        self._dispatcher.consumers.mark_alive(name)
        self._wake()

    def pause(self, name: str, *, paused: bool) -> None:
        self._dispatcher.consumers.pause(name, paused=paused)
        self._wake()

    def nack(self, epoch: int, offset: int, token: int, delay_ms: int | None, reason: str = "") -> AckResult:
        if delay_ms is not None:
            delay_ms = min(delay_ms, self._limits.delay_ms_max)
        result = self._dispatcher.nack(offset, epoch, token, self._now(), delay_ms, reason)
        if result is AckResult.OK:
            self._metrics.nacks.inc()
            self._send_revocations()  # now: the nack may be durable, and its response sent, while a round is reading
        return result

    def extend(self, epoch: int, offset: int, token: int, by_ms: int) -> AckResult:
        by_ms = min(by_ms, self._limits.extend_ms_max)
        return self._dispatcher.extend(offset, epoch, token, self._now(), by_ms)

    def acquire(self, name: str, messages_max: int, bytes_max: int) -> Acquired:
        """Lease messages to a consumer that has no credit: as many as are available, and one even if it is larger. If
        there are too few, `on_available` is called when the consumer should ask again, until `stop_waiting`."""
        dispatcher = self._dispatcher
        consumer = dispatcher.consumers.by_name.get(name)
        if consumer is None or self._is_closed:
            return NOTHING
        try:
            if self._read_ahead.forget_below(self._log_start()):
                self._wake()  # it saves what is gone
        except MillpondError:  # it is not served here any more, which ends the task
            self._wake()
            return NOTHING
        dispatcher.consumers.mark_consumer_alive(consumer)
        credit, now = consumer.consumer_credit, self._now()
        dispatcher.expire(now)
        credit.messages, credit.bytes = messages_max, bytes_max
        deliveries = dispatcher.dispatch(now, only=consumer)
        size, is_served = bytes_max - credit.bytes, not consumer.may_receive
        credit.clear()
        if deliveries:
            self._reads_ahead = True
            self._metrics.deliveries.inc(len(deliveries))
            self._wake()  # it has an alarm to set, and to listen for growth if others wait
        if is_served:
            self._unserved.discard(name)
            if self.wants_more:
                self._wake()
        elif name not in self._unserved:
            self._unserved.add(name)
            self._wake()
        return Acquired(deliveries, size)

    def stop_waiting(self, name: str) -> None:
        self._unserved.discard(name)

    @property
    def wants_more(self) -> bool:
        """Whether consumers that acquire would get more if the log was read further."""
        dispatcher = self._dispatcher
        if dispatcher.leased >= dispatcher.config.leases_max or dispatcher.is_full:
            return False
        unordered, by_name = dispatcher.schedule.unordered, dispatcher.consumers.by_name
        if self._reads_ahead and by_name and not dispatcher.config.strict and len(unordered) < READY_MIN:
            return True
        return not unordered and any(name in by_name and not by_name[name].queue for name in self._unserved)

    def notify_unserved(self) -> None:
        for name in list(self._unserved):
            if (receiver := self._receivers.get(name)) is not None:
                receiver.on_available()

    def close(self, error: MillpondError) -> None:
        """Deliver nothing more, and tell the consumers that the partition is lost."""
        self._is_closed = True
        receivers, self._receivers = self._receivers, {}
        for receiver in receivers.values():
            receiver.on_partition_lost(self._partition, error)

    # -- delivery ---------------------------------------------------------------------------------------------

    async def deliver_due(self, now: int) -> None:
        """Expire leases, and deliver all messages that may be delivered now. Raises the error of a read that failed,
        after delivering what needed no read."""
        dispatcher = self._dispatcher
        leased, revoked = dispatcher.leased, len(dispatcher.revoked)
        dispatcher.expire(now)
        ended = (
            leased - dispatcher.leased
        )  # they timed out, or were revoked because an earlier one of the key did
        if ended:
            self._metrics.timeouts.inc(ended - (len(dispatcher.revoked) - revoked))
        deliveries = dispatcher.dispatch(now)
        self._send_revocations()
        if not deliveries:
            return
        self._read_ahead.delivered_at = now
        held = self._read_ahead.held
        missing = [each.offset for each in deliveries if each.offset not in held]
        if missing:
            await self._deliver_read(deliveries, missing)
        else:
            self._hand_out(deliveries, {}, self._receivers)

    async def _deliver_read(self, deliveries: Sequence[QueueDelivery], missing: Sequence[int]) -> None:
        """Deliver messages of which some must be read again. A message that cannot be read now is released as if it had
        never been delivered, together with later ones of its key; a message that no longer exists becomes void."""
        receivers = dict(self._receivers)
        consumer_credits = {each.name: each.consumer_credit for each in self._dispatcher.consumers}
        refusal: MillpondError | None = None
        read: Mapping[int, Record] = {}
        try:
            read = await self._read_ahead.read_again(missing)
        except MillpondError as error:
            refusal = error
        held = self._read_ahead.held
        deliveries = self._still_leased(deliveries, read, consumer_credits, receivers)
        without = [each for each in deliveries if each.offset not in held and each.offset not in read]
        if without:
            self._release_deliveries(without, are_gone=refusal is None)
            rest = [each for each in deliveries if each.offset in held or each.offset in read]
            deliveries = self._still_leased(rest, read, consumer_credits, receivers)
            self._discard_revocations(rest)
        self._hand_out(deliveries, read, receivers)
        if refusal is not None:
            raise refusal

    def _hand_out(
        self,
        deliveries: Sequence[QueueDelivery],
        read: Mapping[int, Record],
        receivers: Mapping[str, Receiver],
    ) -> None:
        """Deliver the messages to their consumers. Every message is held or in `read`."""
        take = self._read_ahead.take
        found: dict[str, list[Delivered]] = {}
        for delivery in deliveries:
            offset, consumer, _, _ = delivery
            if (to := found.get(consumer)) is None:
                to = found[consumer] = []
            to.append(Delivered(delivery, take(offset) or read[offset]))
        for name, delivered in found.items():
            receiver = receivers.get(name)
            if receiver is not None and self._receivers.get(name) is receiver:
                # a consumer that has left has no leases any more
                receiver.deliver(self._partition, self._dispatcher.epoch, delivered)
                self._metrics.deliveries.inc(len(delivered))

    def _still_leased(
        self,
        deliveries: Sequence[QueueDelivery],
        read: Mapping[int, Record],
        consumer_credits: Mapping[str, ConsumerCredit],
        receivers: Mapping[str, Receiver],
    ) -> list[QueueDelivery]:
        """The deliveries that are still leased, and none if the partition was closed. Consumers never see the others,
        so their credit is returned."""
        wanted: list[QueueDelivery] = []
        for each in deliveries:
            if not self._is_closed and self._dispatcher.is_leased(each):
                wanted.append(each)
                continue
            held, record = self._read_ahead.held.get(each.offset), read.get(each.offset)
            size = held[1].size if held is not None else size_of(record) if record is not None else 0
            consumer_credits[each.consumer].restore(size)
        for name in sorted({each.consumer for each in deliveries}) if len(wanted) < len(deliveries) else ():
            if (receiver := receivers.get(name)) is not None:
                receiver.on_credit_returned()
        return wanted

    def _release_deliveries(self, deliveries: Sequence[QueueDelivery], *, are_gone: bool) -> None:
        """Release these deliveries and return the credit, which other partitions may use. Goes from the last to the
        first: releasing an earlier message of a key revokes the later ones as if they had been delivered."""
        for delivery in reversed(deliveries):
            self._dispatcher.restore(delivery)
            if are_gone:
                self._dispatcher.void(delivery.offset)
                self._metrics.voided.inc()
        for name in sorted({delivery.consumer for delivery in deliveries}):
            if (receiver := self._receivers.get(name)) is not None:
                receiver.on_credit_returned()

    def _send_revocations(self) -> None:
        revoked, self._dispatcher.revoked = self._dispatcher.revoked, []
        if revoked:
            self._metrics.revoked.inc(len(revoked))
        for name in sorted({each.consumer for each in revoked}):
            if (receiver := self._receivers.get(name)) is not None:
                own = [each for each in revoked if each.consumer == name]
                receiver.revoke(self._partition, self._dispatcher.epoch, own)

    def _discard_revocations(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Drop the revocations of these deliveries: they were not handed out, so consumers do not know them."""
        offsets = {each.offset for each in deliveries}
        self._dispatcher.revoked = [each for each in self._dispatcher.revoked if each.offset not in offsets]
