"""Random and damaged SASL and ACL messages, given to the code that reads them.

    python -m tests.hostile.security.fuzz --inputs 1000000 --seed 7

A message may be refused with an error that clients can receive, and nothing else. Prints how many were tried.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from unittest import mock

from tests.unit.frontends.kafka.authorization_cases import ANY_ACL
from tests.unit.security.issuer import AUDIENCE, ISSUER, jwks, token
from tests.unit.security.proofs import NOW_MS, SHA_256, SHA_512, Clock, ScramClient, Users, credential

from millpond.frontends.kafka.acl_codes import requested_acl, requested_filter
from millpond.model.acls import ResourceType, check_acl
from millpond.model.errors import MillpondError
from millpond.model.principals import Principal
from millpond.protocol import decode, encode_request, read_request_header
from millpond.protocol.messages import acls, sasl, scram
from millpond.security import plain
from millpond.security.authenticator import AuthenticationSettings, Authenticator
from millpond.security.rights import Rights
from millpond.security.tokens import new_token

ALICE = Principal("User", "alice")
CHUNKS = (
    b"\0",
    b"\xff",
    b",",
    b"=",
    b"n=",
    b"r=",
    b"c=",
    b"p=",
    b"a=",
    b"=2C",
    b"\x01",
    b"Bearer ",
    b"\x80",
    b"}",
)
NUMBERS = (0, 1, 2, 3, 4, 12, 15, 86, 100, 127, -1, -128)


def fast_derivation(password, salt, iterations, mechanism):
    return password.encode()[:1] + salt, b""


def requests():
    """One of each kind, whose bytes are damaged."""
    creation = acls.AclCreation(
        resource_type=2, resource_name="orders", principal="User:a", host="*", operation=3, permission_type=3
    )
    upsertion = scram.ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
    )
    deletion = scram.ScramCredentialDeletion(name="carol", mechanism=2)
    return [
        sasl.SaslHandshakeRequest(mechanism=SHA_256),
        sasl.SaslAuthenticateRequest(auth_bytes=ScramClient().first()),
        acls.CreateAclsRequest(creations=[creation, creation]),
        acls.DescribeAclsRequest(**ANY_ACL),
        acls.DeleteAclsRequest(filters=[acls.DeleteAclsFilter(**ANY_ACL)]),
        scram.DescribeUserScramCredentialsRequest(users=None),
        scram.AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[upsertion]),
    ]


class Fuzzer:
    def __init__(self, seed, keys):
        self._random = random.Random(seed)
        self.tried = Counter()
        self.accepted = Counter()
        users = Users(credential(), credential(mechanism=SHA_512), tokens=(self._token(),))
        settings = AuthenticationSettings(
            mechanisms=(SHA_512, SHA_256, "PLAIN", "OAUTHBEARER"),
            password_iterations=4096,
            oauth_issuer=ISSUER,
            oauth_audience=AUDIENCE,
            oauth_jwks=keys,
        )
        self._authenticator = Authenticator(users, clock=Clock(), settings=settings, off_loop=self._at_once)
        self._frames = self._encoded()
        jwt = token("RS256")
        self._headers = [f"Bearer {jwt}", "Basic YWxpY2U6cGVuY2ls", f"Bearer {self._api_token}", "Digest x"]
        self._bearer = f"n,,\x01auth=Bearer {jwt}\x01\x01".encode()

    def _token(self):
        made = new_token(
            "User:ci",
            now_ms=NOW_MS,
            expires_at_ms=None,
            created_by="User:admin",
            random=self._random.randbytes,
        )
        self._api_token = made.text
        return made.stored

    async def _at_once(self, work):
        return work()

    def _encoded(self):
        found = []
        for request in requests():
            kind = type(request)
            for version in range(kind.versions.first, kind.versions.last + 1):
                frame = b"".join(encode_request(request, version, 1, "fuzz").buffers)[4:]
                _, position = read_request_header(frame)
                found.append((kind, version, frame[position:]))
        return found

    def damaged(self, data):
        chance, found = self._random, bytearray(data)
        for _ in range(chance.randrange(1, 5)):
            place = chance.randrange(len(found) + 1)
            match chance.randrange(6):
                case 0 if found:
                    found[place % len(found)] ^= 1 << chance.randrange(8)
                case 1:
                    del found[place:]
                case 2:
                    found[place:place] = chance.choice(CHUNKS) * chance.choice((1, 1, 2, 200))
                case 3:
                    del found[place : place + chance.randrange(1, 9)]
                case 4:
                    found[place:place] = found[: chance.randrange(64)]
                case _:
                    found[place:place] = chance.randbytes(chance.randrange(1, 12))
        return bytes(found)

    # -- what is tried ----------------------------------------------------------------------------------------

    async def scram_first(self):
        mechanism = self._random.choice((SHA_256, SHA_512))
        exchange = self._authenticator.begin(mechanism, encrypted=True)
        await exchange.step(self.damaged(ScramClient().first()))

    async def scram_final(self):
        exchange, client = self._authenticator.begin(SHA_256, encrypted=True), ScramClient()
        challenge = (await exchange.step(client.first())).data
        nonce = challenge.partition(b",")[0]
        step = await exchange.step(self.damaged(b"c=biws," + nonce + b",p=" + b"A" * 43 + b"="))
        assert step.identity is None, "a wrong proof was accepted"

    async def plain(self):
        step = await self._authenticator.begin("PLAIN", encrypted=True).step(self.damaged(b"\0alice\0wrong"))
        assert step.identity is None, "a wrong password was accepted"

    async def bearer(self):
        exchange = self._authenticator.begin("OAUTHBEARER", encrypted=True)
        step = await exchange.step(self.damaged(self._bearer))
        if step.identity is None:
            await exchange.step(self.damaged(b"\x01"))

    async def header(self):
        await self._authenticator.authorization(
            self.damaged(self._random.choice(self._headers).encode()).decode("latin-1")
        )

    async def frame(self):
        kind, version, body = self._random.choice(self._frames)
        request = decode(kind, version, self.damaged(body), 0, exact=False)
        self.use(request)

    async def numbers(self):
        """A whole ACL with codes that do not exist."""
        pick = self._random.choice
        creation = acls.AclCreation(
            resource_type=pick(NUMBERS),
            resource_name=pick(("orders", "", "*", "é" * 300, "a\0b", "kafka-cluster")),
            resource_pattern_type=pick(NUMBERS),
            principal=pick(("User:a", "a", "", ":", "User:", "Broker:1", "User:*", "User:é")),
            host=pick(("*", "", "127.0.0.1", "::ffff:1.2.3.4", "nonsense", "fe80::1%eth0")),
            operation=pick(NUMBERS),
            permission_type=pick(NUMBERS),
        )
        self.use(acls.CreateAclsRequest(creations=[creation]))

    def use(self, request):
        """What a handler does with it before it needs the catalog."""
        if isinstance(request, acls.CreateAclsRequest):
            for each in request.creations[:8]:
                acl = requested_acl(each)
                check_acl(acl)
                Rights(ALICE, "127.0.0.1", [acl]).allowed(ResourceType.TOPIC, acl.name)
        elif isinstance(request, acls.DescribeAclsRequest):
            requested_filter(request)
        elif isinstance(request, acls.DeleteAclsRequest):
            for each in request.filters[:8]:
                requested_filter(each)

    # -- the run ----------------------------------------------------------------------------------------------

    async def run(self, inputs, until_s=float("inf")):
        kinds = [self.scram_first, self.scram_final, self.plain, self.bearer, self.header, self.numbers]
        kinds += [self.frame] * 6
        with mock.patch.object(plain.scram, "derive", fast_derivation):
            for number in range(inputs):
                if number % 1000 == 0 and time.monotonic() > until_s:
                    break
                kind = self._random.choice(kinds)
                self.tried[kind.__name__] += 1
                try:
                    await kind()
                except MillpondError:
                    continue
                self.accepted[kind.__name__] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this time, if earlier")
    parser.add_argument("--seed", type=int, default=time.time_ns())
    options = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".json") as keys:
        keys.write(jwks())
        keys.flush()
        fuzzer, began = Fuzzer(options.seed, keys.name), time.monotonic()
        asyncio.run(fuzzer.run(options.inputs, began + options.seconds))
    took = time.monotonic() - began
    print(f"seed {options.seed}: {fuzzer.tried.total()} inputs in {took:.0f} s, 0 crashes")
    for kind, count in sorted(fuzzer.tried.items()):
        print(f"  {kind:12} {count:>9} tried, {fuzzer.accepted[kind]:>7} were well-formed")


if __name__ == "__main__":
    sys.exit(main())
