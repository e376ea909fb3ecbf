"""New connections a second: TCP, TLS where the level has it, and a login by SCRAM.

The client derives the salted password once, so that its own PBKDF2 does not limit the result, and has several
connections under way at a time.
"""

import asyncio
import contextlib
import hashlib
import hmac
import secrets
import ssl
import struct
import time
from base64 import b64decode, b64encode
from typing import TypeVar

from benchmarks.kafka.subjects import Subject
from benchmarks.security.subjects import MECHANISM, USER
from millpond.protocol import (
    LENGTH_BYTES,
    Request,
    Response,
    decode,
    encode_request,
    read_response_header,
)
from millpond.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

AT_A_TIME = 8
HASH = "sha512"
HEADER = b"n,,"
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 1

R = TypeVar("R", bound=Response)


def logins_per_s(subject: Subject, password: str, count: int) -> float:
    """Connections that were opened, authenticated and closed, per second."""
    return asyncio.run(_logins_per_s(subject, ScramClient(password), count))


async def _logins_per_s(subject: Subject, scram: "ScramClient", count: int) -> float:
    await _login(subject, scram)  # the broker has loaded what it needs, and the password is derived
    numbers = iter(range(count))

    async def one_after_another() -> None:
        for _ in numbers:
            await _login(subject, scram)

    begun = time.perf_counter()
    await asyncio.gather(*(one_after_another() for _ in range(AT_A_TIME)))
    return count / (time.perf_counter() - begun)


async def _login(subject: Subject, scram: "ScramClient") -> None:
    host, _, port = subject.address.rpartition(":")
    ca = subject.credentials.get("ssl.ca.location")
    context = ssl.create_default_context(cafile=ca) if ca else None
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        wire = _Wire(reader, writer)
        shaken = await wire.ask(
            SaslHandshakeRequest(mechanism=MECHANISM), HANDSHAKE_VERSION, SaslHandshakeResponse
        )
        assert shaken.error_code == 0, "the mechanism is enabled"
        first = scram.first()
        challenge = await wire.authenticate(HEADER + first)
        await wire.authenticate(scram.final(first, challenge))
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


class _Wire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0

    async def ask(self, request: Request, version: int, kind: type[R]) -> R:
        self._number += 1
        self._writer.writelines(encode_request(request, version, self._number, "bench").buffers)
        (length,) = struct.unpack(">i", await self._reader.readexactly(LENGTH_BYTES))
        frame = await self._reader.readexactly(length)
        _, position = read_response_header(frame, request.api_key, version)
        return decode(kind, version, frame, position)

    async def authenticate(self, message: bytes) -> bytes:
        request = SaslAuthenticateRequest(auth_bytes=message)
        response = await self.ask(request, AUTHENTICATE_VERSION, SaslAuthenticateResponse)
        assert response.error_code == 0, response.error_message
        return bytes(response.auth_bytes)


class ScramClient:
    """The client's side of SCRAM for one user, who always gets the same salt."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._salted: dict[bytes, bytes] = {}

    def first(self) -> bytes:
        """Without its header."""
        return b"n=" + USER.encode() + b",r=" + secrets.token_hex(16).encode()

    def final(self, first: bytes, challenge: bytes) -> bytes:
        parts = dict(part.split(b"=", 1) for part in challenge.split(b","))
        bare = b"c=" + b64encode(HEADER) + b",r=" + parts[b"r"]
        message = b",".join((first, challenge, bare))
        key = hmac.digest(self._salted_password(parts[b"s"], int(parts[b"i"])), b"Client Key", HASH)
        signature = hmac.digest(hashlib.new(HASH, key).digest(), message, HASH)
        proof = (int.from_bytes(key) ^ int.from_bytes(signature)).to_bytes(len(key))
        return bare + b",p=" + b64encode(proof)

    def _salted_password(self, salt: bytes, iterations: int) -> bytes:
        found = self._salted.get(salt)
        if found is None:
            found = hashlib.pbkdf2_hmac(HASH, self._password, b64decode(salt), iterations)
            self._salted[salt] = found
        return found
