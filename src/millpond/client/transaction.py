"""Acknowledges deliveries and publishes messages together, atomically."""

from types import TracebackType
from typing import Self

from millpond.client import arguments
from millpond.client.calls import QUEUE, Connections
from millpond.client.delivery import OUTCOMES, Acknowledgement, BaseDelivery, Outcome
from millpond.client.link import AttachParameters
from millpond.client.message import Placed
from millpond.client.publishing import Attributes, headers_of, published_record
from millpond.model.errors import InvalidRequest, StaleDelivery
from millpond.records import NO_TIMESTAMP
from millpond.stubs import log_pb2
from millpond.stubs import queue_pb2 as pb


class TransactionOperations:
    """The operations to commit. All deliveries must come from one broker; messages may go to any."""

    def __init__(self, attach_parameters: AttachParameters) -> None:
        self._attach_parameters = attach_parameters
        self._deliveries: list[BaseDelivery] = []
        self._appended: list[pb.Appended] = []
        self._placed: list[Placed] = []

    @property
    def placed(self) -> list[Placed]:
        """Where each message is stored, in order, once they are committed."""
        return self._placed

    def ack(self, delivery: BaseDelivery) -> None:
        """Acknowledge a delivery when the transaction commits."""
        if arguments.instance("delivery", delivery, BaseDelivery).is_answered:
            raise InvalidRequest(reason=f"{delivery!r} was already acknowledged")
        self._deliveries.append(delivery)

    def publish(
        self,
        value: bytes | None,
        *,
        topic: str,
        key: bytes | None = None,
        attributes: Attributes | None = None,
        partition: int | None = None,
    ) -> None:
        """Add a message to the transaction. It is stored when the transaction commits."""
        record = published_record(value, key, headers_of(attributes))
        assert record.timestamp == NO_TIMESTAMP, "the broker sets the timestamp"
        message = log_pb2.NewMessage(key=record.key, value=record.value)
        for name, value in record.headers:
            message.headers.add(name=name, value=value)
        self._appended.append(
            pb.Appended(
                topic=arguments.topic("topic", topic),
                partition=None
                if partition is None
                else arguments.integer("partition", partition, 0, arguments.UINT32_MAX),
                message=message,
            )
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self._deliveries and not self._appended

    def request(self) -> tuple[str, pb.CommitRequest]:
        """Of the library itself: the request, and the address of the broker to send it to."""
        addresses = {each.link.address for each in self._deliveries}
        if len(addresses) != 1:
            reason = f"a transaction acknowledges deliveries of one broker, and these are of {len(addresses)}"
            raise InvalidRequest(reason=reason)
        return addresses.pop(), pb.CommitRequest(
            topic=self._attach_parameters.topic,
            subscription=self._attach_parameters.subscription,
            consumer=self._attach_parameters.consumer,
            acks=[each.ack_id for each in self._deliveries],
            messages=self._appended,
        )

    def conclude(self, response: pb.CommitResponse) -> None:
        """Of the library itself: raises `StaleDelivery` if nothing was committed; each delivery can then still be
        acknowledged separately."""
        for delivery, code in zip(self._deliveries, response.answers, strict=True):
            outcome = OUTCOMES.get(code, Outcome.UNKNOWN)
            if outcome is not Outcome.OK:
                raise StaleDelivery(
                    partition=delivery.partition, number=delivery.number, reason=outcome.value
                )
        for delivery in self._deliveries:
            delivery.take_as_acked(_committed())
        self._placed = [
            Placed(partition, number)
            for partition, number in zip(response.partitions, response.numbers, strict=True)
        ]


class AsyncTransaction(TransactionOperations):
    """Commits at the end of its `async with`. If the block raises, nothing is done, and the deliveries must
    still be acknowledged."""

    def __init__(self, connections: Connections, attach_parameters: AttachParameters) -> None:
        super().__init__(attach_parameters)
        self._connections = connections

    async def commit(self) -> None:
        """Returns when it is committed. The request takes effect at most once: if the response is lost, this
        raises `OutcomeUnknown`, and deliveries that were not acknowledged are redelivered."""
        address, request = self.request()
        self.conclude(
            await self._connections.call_at_most_once(
                QUEUE, "Commit", request, pb.CommitResponse, address=address
            )
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and not self.is_empty:
            await self.commit()


def _committed() -> Acknowledgement:
    done = Acknowledgement()
    done.settle(Outcome.OK)
    return done
