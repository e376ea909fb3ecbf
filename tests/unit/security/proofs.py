"""What tests of authentication share: a clock, stored credentials, and a SCRAM client that can break every rule."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from dataclasses import dataclass, field

from millpond.catalog.security import ApiToken, ScramCredential
from millpond.security import scram
from millpond.security.decoys import Decoys

SHA_256, SHA_512 = scram.SCRAM_SHA_256, scram.SCRAM_SHA_512
SECRET = b"the cluster's own secret".ljust(32)
NOW_MS = 1_800_000_000_000


class Clock:
    """Wall time and monotonic time, moved by the test together."""

    def __init__(self, now_ms=NOW_MS):
        self.ms = now_ms

    def now_ms(self):
        return self.ms

    def monotonic_ms(self):
        return self.ms - NOW_MS + 5_000


class Users:
    """The users and tokens of a cluster, as `SecurityView` shows them."""

    def __init__(self, *credentials: ScramCredential, tokens: tuple[ApiToken, ...] = (), secret=SECRET):
        self.credentials = {(each.user, each.mechanism): each for each in credentials}
        self.tokens = {each.id: each for each in tokens}
        self.secret = secret
        self.decoys = Decoys(credentials)
        self.on_catch_up = lambda: None

    async def catch_up(self):
        self.on_catch_up()

    def scram_credential(self, user, mechanism):
        return self.credentials.get((user, mechanism))

    def token(self, token_id):
        return self.tokens.get(token_id)


def counting_bytes(size):
    return bytes(range(size))


def credential(user="alice", password="pencil", mechanism=SHA_256, iterations=4096, version=1):
    made = scram.new_credential(user, password, mechanism, iterations, counting_bytes)
    return made._replace(version=version)


def hash_of(mechanism):
    return getattr(hashlib, scram.HASHES[mechanism])


@dataclass
class ScramClient:
    """Follows RFC 5802 with other code than the server's, except for what a test changes before a message is sent."""

    user: str = "alice"
    password: str = "pencil"
    mechanism: str = SHA_256
    header: bytes = b"n,,"
    nonce: bytes = b"rOprNGfwEbeRWgbNEkqO"
    extension: bytes = b""
    binding: bytes | None = None
    final_extension: bytes = b""
    bare: bytes = field(init=False, default=b"")

    def first(self):
        name = self.user.replace("=", "=3D").replace(",", "=2C").encode()
        self.bare = b"n=" + name + b",r=" + self.nonce + self.extension
        return self.header + self.bare

    def final(self, server_first, *, nonce=None):
        parts = dict(part.split(b"=", 1) for part in server_first.split(b","))
        binding = b64encode(self.header if self.binding is None else self.binding)
        bare = b"c=" + binding + b",r=" + (nonce or parts[b"r"]) + self.final_extension
        self.message = b",".join((self.bare, server_first, bare))
        proof = self.proof(b64decode(parts[b"s"]), int(parts[b"i"]))
        return bare + b",p=" + b64encode(proof)

    def proof(self, salt, iterations):
        hashed = hash_of(self.mechanism)
        name = hashed().name
        self.salted = hashlib.pbkdf2_hmac(name, self.password.encode(), salt, iterations)
        key = hmac.new(self.salted, b"Client Key", hashed).digest()
        signature = hmac.new(hashed(key).digest(), self.message, hashed).digest()
        return (int.from_bytes(key) ^ int.from_bytes(signature)).to_bytes(len(key))

    def accepts(self, server_final):
        hashed = hash_of(self.mechanism)
        key = hmac.new(self.salted, b"Server Key", hashed).digest()
        return server_final == b"v=" + b64encode(hmac.new(key, self.message, hashed).digest())
