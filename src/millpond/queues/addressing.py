"""Messages addressed to a single subscription: dead letters that a redrive returned to the subscription they came from.

A header names the subscription. It is sealed with the cluster's key over topic, subscription, key and value, so a
header that a producer writes or copies from another message is ignored and hides the message from no subscription.
"""

import hashlib
import hmac
from typing import Final

from millpond.model.ids import TopicId
from millpond.records import Header, Record

REDRIVE_TO: Final = "millpond-redrive-to"
MAC_BYTES: Final = 16


class Addressing:
    """Creates and checks the address headers of one topic's messages."""

    def __init__(self, secret: bytes, topic_id: TopicId) -> None:
        self._keyed = hashlib.blake2b(topic_id, key=secret[:64], digest_size=MAC_BYTES, person=b"redrive")

    def header(self, subscription: str, record: Record) -> Header:
        """The header that addresses a message to this subscription only."""
        name = subscription.encode()
        return REDRIVE_TO, name + b":" + self._mac(name, record)

    def addressee(self, record: Record) -> str | None:
        """The only subscription that receives the message; None if all receive it."""
        value = dict(record.headers).get(REDRIVE_TO)
        if value is None:
            return None
        name, _, mac = value.rpartition(b":")
        return name.decode() if hmac.compare_digest(mac, self._mac(name, record)) else None

    def _mac(self, name: bytes, record: Record) -> bytes:
        mac = self._keyed.copy()
        for part in (name, record.key, record.value):
            mac.update(b"-" if part is None else b"+%d:" % len(part) + part)
        return mac.hexdigest().encode()
