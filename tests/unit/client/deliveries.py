"""Deliveries without a broker, for the pure parts of a subscriber."""

from millpond.client.delivery import AsyncDelivery
from millpond.stubs import queue_pb2 as pb


class NoLink:
    """Where deliveries come from; it notes what is given back."""

    topic = "t"
    address = "nowhere"

    def __init__(self):
        self.given_back = []

    def return_credit(self, delivery):
        self.given_back.append(delivery.number)

    def now_ms(self):
        return 5_000


def delivery(link, number, key=None, *, partition=0, epoch=1, deadline=100.0, value=b"v", **fields):
    raw = pb.Delivery(
        ack_id=b"%d/%d/%d" % (partition, epoch, number), number=number, key=key, value=value, **fields
    )
    return AsyncDelivery(link, partition, epoch, raw, deadline)
