"""A broker with security on: users with passwords, an administrator, and clients that log in."""

from tests.unit.frontends.kafka.wire import Client
from tests.unit.security.proofs import ScramClient

from millpond.catalog import security
from millpond.model.acls import CLUSTER_NAME, Acl, AclFilter, PatternType, Permission, ResourceType
from millpond.model.principals import Principal
from millpond.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from millpond.security import Identity
from millpond.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, new_credential

ADMIN = Principal("User", "admin")
ITERATIONS = 4096
PASSWORD = "pencil"
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
SETTINGS = {"security": True, "super_users": (ADMIN,)}


class Cluster:
    """What an administrator does."""

    def __init__(self, broker):
        self.broker = broker
        self.administration = broker.security_administration
        self.access = broker.security.access(Identity(ADMIN, "test"), "127.0.0.1")

    async def user(self, name="alice", password=PASSWORD, mechanisms=(SCRAM_SHA_256, SCRAM_SHA_512)):
        """Creates a user, or changes its password, with few iterations."""
        made = [new_credential(name, password, each, ITERATIONS, bytes) for each in mechanisms]
        await self.broker.log.write(lambda tx: security.put_credentials(tx, made))
        await self.broker.security.refresh()

    async def set_acls(self, *acls):
        """Replaces all ACLs."""
        await self.administration.delete_acls(self.access, [AclFilter()])
        assert not any(await self.administration.create_acls(self.access, acls))

    async def grant(self, *rights, to="User:alice", names=None):
        """Exactly these rights, on the given name of each type of resource."""
        await self.set_acls(*(allow(right, (names or {}).get(right.resource, "*"), to) for right in rights))

    async def connected(self, stack, user="alice", password=PASSWORD, mechanism=SCRAM_SHA_256):
        client = await stack.enter_async_context(Client(self.broker.kafka.listener))
        assert (await log_in(client, user, password, mechanism)).error_code == 0
        return client


def allow(right, name, to="User:alice"):
    """A name that ends with `*` is a prefix."""
    is_prefix = name.endswith("*") and name != "*"
    pattern = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    if right.resource is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    name = name[:-1] if is_prefix else name
    return Acl(right.resource, pattern, name, to, "*", right.operation, Permission.ALLOW)


async def shake(client, mechanism=SCRAM_SHA_256, version=HANDSHAKE_VERSION):
    return await client.send(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(client, data, version=AUTHENTICATE_VERSION):
    return await client.send(SaslAuthenticateRequest(auth_bytes=data), version)


async def log_in(
    client, user="alice", password=PASSWORD, mechanism=SCRAM_SHA_256, version=AUTHENTICATE_VERSION
):
    """The last response of the exchange."""
    assert (await shake(client, mechanism)).error_code == 0
    if mechanism == "PLAIN":
        return await authenticate(client, f"\0{user}\0{password}".encode(), version)
    scram = ScramClient(user, password, mechanism)
    first = await authenticate(client, scram.first(), version)
    assert first.error_code == 0
    final = await authenticate(client, scram.final(bytes(first.auth_bytes)), version)
    assert final.error_code != 0 or scram.accepts(bytes(final.auth_bytes))
    return final
