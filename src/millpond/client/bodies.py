"""Fetches the body of a delivery: from the delivery itself, from the log, or from the object store."""

from millpond.client.calls import LOG, Connections
from millpond.client.delivery import BaseDelivery
from millpond.client.payloads import BodyTransfer, PayloadReference
from millpond.model.errors import OffsetOutOfRange
from millpond.model.payloads import HEADER
from millpond.stubs import log_pb2
from millpond.stubs import queue_pb2 as pb


class BodyFetcher:
    def __init__(self, connections: Connections, topic: str) -> None:
        self._connections = connections
        self._transfer = BodyTransfer(connections)
        self._topic = topic

    async def fetch(self, delivery: BaseDelivery, raw: pb.Delivery) -> bytes | None:
        reference = next((each for each in raw.headers if each.name == HEADER), None)
        if reference is not None:
            found = PayloadReference.from_headers(self._topic, [(HEADER, reference.value)])
            assert found is not None, "the header is there"
            return await self._transfer.download(found)
        if raw.value_omitted:
            return await self._by_number(delivery)
        return delivery.value

    async def _by_number(self, delivery: BaseDelivery) -> bytes | None:
        position = log_pb2.Position(partition=delivery.partition, read_from=delivery.number)
        request = log_pb2.PollRequest(topic=self._topic, positions=[position], messages_max=1, strict=True)
        found = await self._connections.call(
            LOG, "Poll", request, log_pb2.PollResponse, address=delivery.link.address
        )
        for message in found.messages:
            if message.number == delivery.number:
                return message.value if message.HasField("value") else None
        raise OffsetOutOfRange(f"Message {delivery.number} of partition {delivery.partition} is gone.")
