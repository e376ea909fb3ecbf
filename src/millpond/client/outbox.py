"""Acknowledgements (acks, nacks, extensions) of one connection, to be sent to its broker. Pure, except that
any thread may add one.

While some are in flight, the next ones accumulate, so single ones are fast and thousands are sent together. A
broker responds to a request when all its partitions are saved. If that takes long, each partition gets its
own requests, so that a partition that cannot be saved does not delay the others.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from millpond.client.delivery import ACK, NACK, OUTCOMES, AckAction, Acknowledgement, BaseDelivery, Outcome
from millpond.stubs import queue_pb2 as pb

REQUESTS_IN_FLIGHT_MAX: Final = 4
ACK_REQUESTS_IN_FLIGHT_MAX: Final = 2
"""Requests in flight: one that is being made durable, and one for the broker's next commit, which a third
would only join."""
LATE_S: Final = 1.0
"""A request without a response after this time waits for a partition that cannot be saved."""
REQUESTS_IN_FLIGHT_WHEN_LATE_MAX: Final = 28
"""One request for each partition. Brokers stop reading at 32 requests in flight, and a heartbeat must still
get through."""
ANSWERS_MAX: Final = 5_000
"""In one request; brokers accept 10,000."""


REASON_CHARACTERS_MAX: Final = 256 * 1024
"""In one request, all reasons of nacks together."""

ANSWER_OK: Final = pb.ANSWER_OK


class OutboxItem(NamedTuple):
    action: AckAction
    delivery: BaseDelivery
    acknowledgement: Acknowledgement
    ms: int | None
    reason: str = ""


class OutboxRequest(NamedTuple):
    sent_at: float
    items: list[OutboxItem]
    partition: int | None
    """Set if it contains only this partition, because other requests are late."""


class Outbox:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pending: deque[OutboxItem] = deque()
        self._is_urgent = False
        """Whether the pending items may include nacks or extends."""
        self._by_partition: dict[int, deque[OutboxItem]] = {}
        """While a request is late: the pending items, by partition."""
        self._in_flight: dict[int, OutboxRequest] = {}
        """The oldest first."""
        self._number = 0

    def add(self, item: OutboxItem) -> None:
        self._pending.append(item)
        if item.action is not ACK:
            self._is_urgent = True

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._by_partition and not self._in_flight

    @property
    def is_late(self) -> bool:
        """Whether a response of the broker is overdue."""
        oldest = next(iter(self._in_flight.values()), None)
        return oldest is not None and oldest.sent_at + LATE_S <= self._now()

    @property
    def has_heartbeat_in_flight(self) -> bool:
        """Whether a heartbeat is in flight."""
        return any(not request.items for request in self._in_flight.values())

    def heartbeat(self) -> pb.Answers:
        """An empty request. The broker responds to it like to any other."""
        return self._sent([], pb.Answers())

    def next_request(self) -> pb.Answers | None:
        if self.is_late:
            self._split_by_partition()
            return self._next_partition_request()
        if self._by_partition:
            self._merge_partitions()
        if not self._pending or len(self._in_flight) >= self._in_flight_max or self._waits_for_more_acks():
            return None
        hurried, self._is_urgent = self._is_urgent, False  # before taking items: another thread may add more
        request = self._request_of(self._pending)
        if hurried and self._pending:
            self._is_urgent = True
        return request

    def _split_by_partition(self) -> None:
        while self._pending:
            item = self._pending.popleft()
            self._by_partition.setdefault(item.delivery.partition, deque()).append(item)

    def _merge_partitions(self) -> None:
        """Within a partition, later items stay behind earlier ones."""
        apart, self._by_partition = self._by_partition, {}
        self._pending.extendleft(reversed([*chain.from_iterable(apart.values())]))
        self._is_urgent = True

    def _next_partition_request(self) -> pb.Answers | None:
        if len(self._in_flight) >= REQUESTS_IN_FLIGHT_WHEN_LATE_MAX:
            return None
        busy = {request.partition for request in self._in_flight.values()}
        partition = next((each for each in self._by_partition if each not in busy), None)
        if partition is None:
            return None
        request = self._request_of(self._by_partition[partition], partition)
        if not self._by_partition[partition]:
            del self._by_partition[partition]
        return request

    def _request_of(self, pending: deque[OutboxItem], partition: int | None = None) -> pb.Answers:
        acks, nacks, extends = taken = _taken(pending)
        request = pb.Answers(acks=[each.delivery.ack_id for each in acks])
        if nacks:
            request.nacks.extend([each.delivery.ack_id for each in nacks])
            if (delay_ms := nacks[0].ms) is not None:
                request.nack_delay_ms = delay_ms
            if any(each.reason for each in nacks):
                request.nack_reasons.extend([each.reason for each in nacks])
        if extends:
            request.extends.extend([each.delivery.ack_id for each in extends])
            request.extend_ms = extends[0].ms or 0
        return self._sent([item for items in taken for item in items], request, partition)

    def settle(self, results: pb.Results) -> list[OutboxItem]:
        """Handle the broker's results. Returns the items that need attention: nacks, and items that the
        broker did not accept."""
        request = self._in_flight.pop(results.request, None)
        if request is None:
            return []
        notable = []
        for item, code in zip(request.items, results.answers, strict=True):
            item.acknowledgement.settle(OUTCOMES.get(code, Outcome.UNKNOWN))
            if code != ANSWER_OK or item.action is NACK:
                notable.append(item)
        return notable

    def lose(self) -> Sequence[OutboxItem]:
        """The connection is lost, and with it every delivery. Returns the items without a result."""
        lost = [item for request in self._in_flight.values() for item in request.items]
        lost += chain.from_iterable(self._by_partition.values())
        self._in_flight, self._by_partition = {}, {}
        while self._pending:
            lost.append(self._pending.popleft())
        for item in lost:
            item.acknowledgement.settle(Outcome.LOST)
        return lost

    def _waits_for_more_acks(self) -> bool:
        """Whether to wait for more acks. A request costs both sides as much as a hundred acks, so a second
        one is sent only when it has as many items as the first."""
        oldest = next(iter(self._in_flight.values()), None)
        return oldest is not None and not self._is_urgent and len(self._pending) < len(oldest.items)

    @property
    def _in_flight_max(self) -> int:
        """Acks wait until there are more of them. Other items may not fit into one request, and do not wait."""
        return REQUESTS_IN_FLIGHT_MAX if self._is_urgent else ACK_REQUESTS_IN_FLIGHT_MAX

    def _sent(self, items: list[OutboxItem], request: pb.Answers, partition: int | None = None) -> pb.Answers:
        self._number += 1
        request.request = self._number
        self._in_flight[self._number] = OutboxRequest(self._now(), items, partition)
        return request


def _taken(pending: deque[OutboxItem]) -> tuple[list[OutboxItem], list[OutboxItem], list[OutboxItem]]:
    """Acks, nacks and extends from the front, as many as one request can express: it has one delay for all
    nacks, one duration for all extends, and a limited size."""
    taken: tuple[list[OutboxItem], list[OutboxItem], list[OutboxItem]] = ([], [], [])
    room = REASON_CHARACTERS_MAX
    for _ in range(min(len(pending), ANSWERS_MAX)):
        item = pending[0]
        same = taken[item.action]
        room -= len(item.reason)
        if (same and same[0].ms != item.ms) or room < 0:
            break
        same.append(pending.popleft())
    return taken
