"""Messages for one subscription alone: dead letters that were sent back to the one that gave them up.

Whom a message is for stands in a header, sealed with the cluster's own key over topic, subscription, key and value. So
what a producer writes there, or copies from elsewhere, hides its message from nobody.
"""

import hashlib
import hmac
from typing import Final

from millpond.model.ids import TopicId
from millpond.records import Header, Record

REDRIVE_TO: Final = "millpond-redrive-to"
SEAL_BYTES: Final = 16


class Addressing:
    """For the messages of one topic."""

    def __init__(self, secret: bytes, topic_id: TopicId) -> None:
        self._keyed = hashlib.blake2b(topic_id, key=secret[:64], digest_size=SEAL_BYTES, person=b"redrive")

    def header(self, subscription: str, record: Record) -> Header:
        """What makes a message this subscription's own."""
        name = subscription.encode()
        return REDRIVE_TO, name + b":" + self._seal(name, record)

    def addressee(self, record: Record) -> str | None:
        """The only subscription that the message is for; None if it is for all."""
        value = dict(record.headers).get(REDRIVE_TO)
        if value is None:
            return None
        name, _, seal = value.rpartition(b":")
        return name.decode() if hmac.compare_digest(seal, self._seal(name, record)) else None

    def _seal(self, name: bytes, record: Record) -> bytes:
        seal = self._keyed.copy()
        for part in (name, record.key, record.value):
            seal.update(b"-" if part is None else b"+%d:" % len(part) + part)
        return seal.hexdigest().encode()
