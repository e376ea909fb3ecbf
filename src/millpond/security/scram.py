"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without I/O.

Stricter than the RFC where Kafka's clients do not need more: no channel binding, no extensions, no user on behalf of
another. An unknown user gets a salt, like a known one, and fails at the end, so that names cannot be probed. Every
failure is the same `AuthenticationFailed`.
"""

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from millpond.catalog.security import ScramCredential
from millpond.model.errors import AuthenticationFailed, InvalidCredential
from millpond.security.names import check_user_name, is_user_name

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
HASHES: Final = {SCRAM_SHA_512: "sha512", SCRAM_SHA_256: "sha256"}
"""The hash function of each mechanism, the strongest first."""
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
"""Kafka's limits. Its clients refuse fewer."""
SALT_BYTES: Final = 16
SALT_BYTES_MAX: Final = 255
NONCE_BYTES: Final = 24
"""192 bits; a multiple of three, so that base64 needs no `=`."""
PASSWORD_BYTES_MAX: Final = 1024
MESSAGE_BYTES_MAX: Final = 4096

ABSENT: Final = "\0"
"""No name of a user contains it."""
_NAME: Final = rb"(?:[ -+\--<>-~]|=2C|=3D)+"  # printable ASCII without `,` and `=`
_NONCE: Final = rb"[!-+\--~]+"
_BASE64: Final = rb"[A-Za-z0-9+/]+={0,2}"
_FIRST: Final = re.compile(
    rb"(?P<header>[ny],(?:a=(?P<authzid>%b))?,)(?P<bare>n=(?P<user>%b),r=(?P<nonce>%b))"
    % (_NAME, _NAME, _NONCE)
)
_FINAL: Final = re.compile(
    rb"(?P<bare>c=(?P<binding>%b),r=(?P<nonce>%b)),p=(?P<proof>%b)" % (_BASE64, _NONCE, _BASE64)
)


class ClientFirst(NamedTuple):
    """The first message of a client. `header` and `bare` are its bytes, which the last message must confirm."""

    header: bytes
    bare: bytes
    user: str
    nonce: bytes


class ClientFinal(NamedTuple):
    """The last message of a client: its header in base64, the whole nonce, and the proof; `bare` is all but the
    proof."""

    bare: bytes
    binding: bytes
    nonce: bytes
    proof: bytes


# -- credentials ----------------------------------------------------------------------------------------------


def derive(password: str, salt: bytes, iterations: int, mechanism: str) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of a password. Slow on purpose: call it outside of the event loop. The password is not
    normalized, like Kafka's."""
    return keys_of(hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations), mechanism)


def keys_of(salted_password: bytes, mechanism: str) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name)


def new_credential(
    user: str, password: str, mechanism: str, iterations: int, random: Callable[[int], bytes]
) -> ScramCredential:
    """What to store of a password. Slow, like `derive`. Raises `InvalidCredential`."""
    check_credential(user, mechanism, iterations)
    if not is_password(password):
        raise InvalidCredential(
            reason=f"a password has 1 to {PASSWORD_BYTES_MAX} bytes in UTF-8, none of them zero"
        )
    salt = random(SALT_BYTES)
    return ScramCredential(user, mechanism, salt, *derive(password, salt, iterations, mechanism), iterations)


def salted_credential(
    user: str, mechanism: str, iterations: int, salt: bytes, salted_password: bytes
) -> ScramCredential:
    """What to store of a password that the client has salted itself, as Kafka's clients do to change a password.
    Raises `InvalidCredential`."""
    check_credential(user, mechanism, iterations)
    if not 0 < len(salt) <= SALT_BYTES_MAX:
        raise InvalidCredential(reason=f"a salt has 1 to {SALT_BYTES_MAX} bytes")
    if len(salted_password) != digest_size(mechanism):
        raise InvalidCredential(reason=f"a salted password of {mechanism} has {digest_size(mechanism)} bytes")
    return ScramCredential(user, mechanism, salt, *keys_of(salted_password, mechanism), iterations)


def check_credential(user: str, mechanism: str, iterations: int) -> None:
    check_user_name(user)
    if mechanism not in HASHES:
        raise InvalidCredential(reason=f"the mechanism is one of {', '.join(HASHES)}")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise InvalidCredential(reason=f"the iterations lie between {ITERATIONS_MIN} and {ITERATIONS_MAX}")


def is_password(password: str) -> bool:
    """Whether a password can be stored and sent: PLAIN ends it with a zero."""
    try:
        size = len(password.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return 0 < size <= PASSWORD_BYTES_MAX and "\0" not in password


def new_nonce(random: Callable[[int], bytes]) -> str:
    """The server's half of a nonce."""
    return b64encode(random(NONCE_BYTES)).decode()


def digest_size(mechanism: str) -> int:
    """In bytes, of the hash function of a mechanism."""
    return hashlib.new(HASHES[mechanism]).digest_size


# -- messages -------------------------------------------------------------------------------------------------


def parse_first(data: bytes) -> ClientFirst:
    """A user may name itself as the one it acts for, and no other one (CVE-2017-12610)."""
    found = _FIRST.fullmatch(data) if len(data) <= MESSAGE_BYTES_MAX else None
    if found is None:
        raise AuthenticationFailed
    user = _unescaped(found["user"])
    if found["authzid"] is not None and _unescaped(found["authzid"]) != user:
        raise AuthenticationFailed
    if not is_user_name(user):
        raise AuthenticationFailed
    return ClientFirst(found["header"], found["bare"], user, found["nonce"])


def parse_final(data: bytes) -> ClientFinal:
    found = _FINAL.fullmatch(data) if len(data) <= MESSAGE_BYTES_MAX else None
    if found is None:
        raise AuthenticationFailed
    try:
        proof = b64decode(found["proof"], validate=True)
    except binascii.Error:
        raise AuthenticationFailed from None
    return ClientFinal(found["bare"], found["binding"], found["nonce"], proof)


def _unescaped(name: bytes) -> str:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode()


# -- the exchange ---------------------------------------------------------------------------------------------


class ScramExchange:
    """One exchange: `first`, then `final`, each once. `look_up` returns the stored credential of a user, if any, and
    `decoy` the one that an unknown user seems to have. `stand_in` names a stored user for any name: its credential is
    read in place of that of an unknown user, because reading memory takes time. `nonce` is the server's half of the
    nonce, used for this exchange only."""

    def __init__(
        self,
        mechanism: str,
        *,
        look_up: Callable[[str], ScramCredential | None],
        decoy: Callable[[str], ScramCredential],
        stand_in: Callable[[str], str],
        nonce: str,
    ) -> None:
        self._mechanism = mechanism
        self._look_up = look_up
        self._decoy = decoy
        self._stand_in = stand_in
        self._server_nonce = nonce.encode()

    def first(self, data: bytes) -> bytes:
        """Returns the server's first message: nonce, salt and iterations."""
        self._first = parse_first(data)
        user = self._first.user
        # The same steps for every user: one look-up that finds and one that does not, a decoy, two salts.
        fake, absent, other = self._decoy(user), user + ABSENT, self._stand_in(user)
        self._stored = self._look_up(user)
        read = self._look_up(other if self._stored is None else absent)
        self._credential = self._stored or read or fake
        salts = b64encode(fake.salt), b64encode(self._credential.salt)
        iterations = fake.iterations, self._credential.iterations
        shown = self._stored is not None
        self._nonce = self._first.nonce + self._server_nonce
        self._server_first = b"r=%b,s=%b,i=%d" % (self._nonce, salts[shown], iterations[shown])
        return self._server_first

    def final(self, data: bytes) -> tuple[bytes, ScramCredential]:
        """Returns the server's last message, which proves to the client that the server knows the password, too, and
        the credential whose password the client has proved to know."""
        final = parse_final(data)
        if final.binding != b64encode(self._first.header) or final.nonce != self._nonce:
            raise AuthenticationFailed
        message = b",".join((self._first.bare, self._server_first, final.bare))
        is_proved = proves(final.proof, self._credential, message)
        if self._stored is None or not is_proved:
            raise AuthenticationFailed
        signature = hmac.digest(self._stored.server_key, message, HASHES[self._mechanism])
        return b"v=" + b64encode(signature), self._stored


def proves(proof: bytes, credential: ScramCredential, message: bytes) -> bool:
    """Whether a client that sent this proof knows the password of the credential."""
    name = HASHES[credential.mechanism]
    signature = hmac.digest(credential.stored_key, message, name)
    if len(proof) != len(signature):
        return False
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key)
