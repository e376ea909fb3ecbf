"""Answers of one connection on their way to its broker: pure, but that any thread may add one.

While some are under way the next ones collect, so single answers are quick and thousands travel together.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from millpond.client.delivery import ACK, NACK, OUTCOMES, Acknowledgement, BaseDelivery, Kind, Outcome
from millpond.stubs import queue_pb2 as pb

UNDER_WAY_MAX: Final = 4
ACKS_UNDER_WAY_MAX: Final = 2
"""Requests: one that is being made durable, and one for the broker's next commit, which a third would only join."""
ANSWERS_MAX: Final = 5_000
"""In one request; brokers take 10,000."""


ANSWER_OK: Final = pb.ANSWER_OK


class Item(NamedTuple):
    kind: Kind
    delivery: BaseDelivery
    acknowledgement: Acknowledgement
    ms: int | None


class Outbox:
    def __init__(self) -> None:
        self._pending: deque[Item] = deque()
        self._under_way: dict[int, list[Item]] = {}
        self._number = 0

    def add(self, item: Item) -> None:
        self._pending.append(item)

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._under_way

    @property
    def waits(self) -> bool:
        """Whether an answer of the broker is due."""
        return bool(self._under_way)

    def heartbeat(self) -> pb.Answers:
        """A request without answers, which is answered, too."""
        return self._sent([], pb.Answers())

    def next_request(self) -> pb.Answers | None:
        if not self._pending or len(self._under_way) >= self._under_way_max:
            return None
        acks, nacks, extends = taken = self._taken()
        request = pb.Answers(acks=[each.delivery.ack_id for each in acks])
        if nacks:
            request.nacks.extend([each.delivery.ack_id for each in nacks])
            if (delay_ms := nacks[0].ms) is not None:
                request.nack_delay_ms = delay_ms
        if extends:
            request.extends.extend([each.delivery.ack_id for each in extends])
            request.extend_ms = extends[0].ms or 0
        return self._sent([item for items in taken for item in items], request)

    def settle(self, results: pb.Results) -> list[Item]:
        """The broker's word. Returns what is worth a look: refusals, by either side."""
        items = self._under_way.pop(results.request, None)
        if items is None:
            return []
        notable = []
        for item, answer in zip(items, results.answers, strict=True):
            item.acknowledgement.settle(OUTCOMES.get(answer, Outcome.UNKNOWN))
            if answer != ANSWER_OK or item.kind is NACK:
                notable.append(item)
        return notable

    def lose(self) -> Sequence[Item]:
        """The connection is gone, and every delivery with it."""
        lost = [item for items in self._under_way.values() for item in items]
        self._under_way = {}
        while self._pending:
            lost.append(self._pending.popleft())
        for item in lost:
            item.acknowledgement.settle(Outcome.LOST)
        return lost

    @property
    def _under_way_max(self) -> int:
        """Acks wait for company. Others may not fit into one request, and do not wait for each other."""
        return ACKS_UNDER_WAY_MAX if self._pending[-1].kind is ACK else UNDER_WAY_MAX

    def _taken(self) -> tuple[list[Item], list[Item], list[Item]]:
        """Acks, nacks and extends from the front, as long as one request can say it: it has one delay for all nacks,
        one time for extends."""
        taken: tuple[list[Item], list[Item], list[Item]] = ([], [], [])
        pending = self._pending
        for _ in range(min(len(pending), ANSWERS_MAX)):
            item = pending[0]
            same = taken[item.kind]
            if same and same[0].ms != item.ms:
                break
            same.append(pending.popleft())
        return taken

    def _sent(self, items: list[Item], request: pb.Answers) -> pb.Answers:
        self._number += 1
        request.request = self._number
        self._under_way[self._number] = items
        return request
