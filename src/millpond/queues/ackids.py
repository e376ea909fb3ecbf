"""Acknowledgement ids. Each id identifies one delivery and carries a keyed hash, so that clients cannot forge ids.

33 bytes: version, partition, epoch, offset, token, and eight bytes of a keyed hash over them and the subscription.
The key belongs to the cluster and is stored in the catalog, so any broker can tell a foreign id from a stale one.
"""

import base64
import binascii
import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from millpond.catalog.subscriptions import SubscriptionId

VERSION: Final = 1
_BODY: Final = struct.Struct(">BIIQQ")
MAC_BYTES: Final = 8
ACK_ID_BYTES: Final = _BODY.size + MAC_BYTES


class AckId(NamedTuple):
    partition: int
    epoch: int
    offset: int
    token: int


class AckIdCodec:
    """Encodes and decodes the ids of one subscription, or of one member of it."""

    def __init__(self, secret: bytes, subscription_id: SubscriptionId, member: str) -> None:
        seed = subscription_id + member.encode()
        key = hashlib.blake2b(seed, key=secret[:64], digest_size=32).digest()
        self._keyed = hashlib.blake2b(key=key, digest_size=MAC_BYTES)

    def encode(self, partition: int, epoch: int, offset: int, token: int) -> bytes:
        body = _BODY.pack(VERSION, partition, epoch, offset, token)
        return body + self._mac(body)

    def decode(self, ack_id: bytes) -> AckId | None:
        """None if this cluster did not create the id, or created it for another subscription."""
        if len(ack_id) != ACK_ID_BYTES:
            return None
        body = ack_id[: _BODY.size]
        if not hmac.compare_digest(self._mac(body), ack_id[_BODY.size :]):
            return None
        version, partition, epoch, offset, token = _BODY.unpack(body)
        return AckId(partition, epoch, offset, token) if version == VERSION else None

    def _mac(self, body: bytes) -> bytes:
        mac = self._keyed.copy()  # faster than a new keyed hash
        mac.update(body)
        return mac.digest()


def to_text(ack_id: bytes) -> str:
    return base64.urlsafe_b64encode(ack_id).decode()


def from_text(text: str) -> bytes:
    """Invalid base64 becomes an empty id, which `decode` never accepts."""
    try:
        return base64.urlsafe_b64decode(text.encode())
    except (ValueError, binascii.Error):
        return b""
