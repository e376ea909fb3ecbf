"""The credential that an unknown user seems to have, so that its challenge cannot be told from that of a known one.

Clients that store a password with Kafka's API choose salt and iterations themselves, and each tool in its own way. The
salt and the iterations of a decoy are therefore like those of a stored credential, drawn by the name of the user: as
often as stored ones are like that, and the same each time and on every broker.
"""

import hashlib
import hmac
import math
import string
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from millpond.catalog.security import ScramCredential
from millpond.security.scram import SALT_BYTES, digest_size

_DIGITS: Final = string.digits + string.ascii_lowercase
_DIGIT_BYTES: Final = frozenset(_DIGITS.encode())
_TEXT_BYTES_MIN: Final = 16
"""A shorter salt may consist of digits by chance."""


class SaltShape(NamedTuple):
    """What a challenge shows of a credential, apart from the value of the salt."""

    iterations: int
    salt_bytes: int = SALT_BYTES
    first_digit: str = ""
    """Of a salt that is a number in base 36, as Kafka's own tools create them; empty for other salts."""


def shape_of(credential: ScramCredential) -> SaltShape:
    salt = credential.salt
    is_text = len(salt) >= _TEXT_BYTES_MIN and _DIGIT_BYTES.issuperset(salt)
    return SaltShape(credential.iterations, len(salt), salt[:1].decode() if is_text else "")


class Decoys:
    """For one state of the stored credentials. Immutable."""

    def __init__(self, credentials: Iterable[ScramCredential] = ()) -> None:
        self._shapes: dict[str, Counter[SaltShape]] = defaultdict(Counter)
        self._users: dict[str, list[str]] = defaultdict(list)
        for each in credentials:
            self._shapes[each.mechanism][shape_of(each)] += 1
            self._users[each.mechanism].append(each.user[:1] + each.user[1:])  # not the same string

    def credential(self, user: str, mechanism: str, *, secret: bytes, iterations: int) -> ScramCredential:
        """A client that does not know the cluster's secret cannot tell it from a stored one. While no credential is
        stored for the mechanism, it has the given iterations."""
        default = SaltShape(iterations)
        shape = self._shape(user, mechanism, secret) or default
        kind = "salt" if shape == default else f"salt {shape}"
        size = digest_size(mechanism)
        salt = _salt(shape, _seed(secret, kind, mechanism, user))
        stored_key, server_key = (
            _seed(secret, part, mechanism, user)[:size] for part in ("stored key", "server key")
        )
        return ScramCredential(user, mechanism, salt, stored_key, server_key, shape.iterations)

    def stand_in(self, user: str, mechanism: str) -> str:
        """The name of some stored user, always the same for a name; empty if there is none."""
        users = self._users.get(mechanism)
        return users[hash(user) % len(users)] if users else ""

    def iterations_max(self, mechanism: str) -> int:
        """Of all stored credentials for the mechanism; 0 without any."""
        return max((each.iterations for each in self._shapes.get(mechanism, ())), default=0)

    def _shape(self, user: str, mechanism: str, secret: bytes) -> SaltShape | None:
        """Weighted rendezvous hashing: when credentials are stored or deleted, few users get another shape."""

        def distance(counted: tuple[SaltShape, int]) -> float:
            shape, count = counted
            drawn = int.from_bytes(_seed(secret, f"shape {shape}", mechanism, user)[:6])
            return -math.log((drawn + 1) / (1 << 48)) / count

        found = self._shapes.get(mechanism)
        return min(found.items(), key=distance)[0] if found else None


def _seed(secret: bytes, part: str, mechanism: str, user: str) -> bytes:
    return hmac.digest(secret, f"{part}\0{mechanism}\0{user}".encode(), "sha512")


def _salt(shape: SaltShape, seed: bytes) -> bytes:
    if not shape.first_digit:
        return (seed + hashlib.shake_256(seed).digest(shape.salt_bytes))[: shape.salt_bytes]
    number = int.from_bytes(hashlib.shake_256(seed).digest(shape.salt_bytes))
    digits = []
    for _ in range(shape.salt_bytes - 1):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return (shape.first_digit + "".join(digits)).encode()
