"""A broker with security on, users with exactly the given rights, and what its log and catalog contain."""

import contextlib
import itertools

from millpond.catalog import security
from millpond.model.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from millpond.model.principals import Principal
from millpond.records import Record
from millpond.security import OPEN_ACCESS
from millpond.security.tokens import new_token
from millpond.testing import running_broker

ADMIN = Principal("User", "admin")
TOPIC, SUBSCRIPTION, GROUP, ABSENT = "orders", "billing", "readers", "absent"
RIGHTS = {
    "T": ResourceType.TOPIC,
    "G": ResourceType.GROUP,
    "C": ResourceType.CLUSTER,
    "X": ResourceType.TRANSACTIONAL_ID,
}


def right(text):
    """`READ T orders`, or `ALTER C`, as operation, type and name."""
    operation, kind, *name = text.split(" ")
    return AclOperation[operation], RIGHTS[kind], name[0] if name else CLUSTER_NAME


def renamed(text):
    """The same with names that do not exist: of a right, or of a response."""
    for each in (TOPIC, SUBSCRIPTION, GROUP):
        text = text.replace(each, ABSENT)
    return text


def partial_rights(rights):
    """For each right that a request needs: all the others, for names that exist and for names that do not."""
    for missing in rights:
        others = [each for each in rights if each != missing]
        yield missing, [*others, *(renamed(each) for each in others if renamed(each) != each)]


class SecuredBroker:
    """Users authenticate with tokens, because passwords take time."""

    def __init__(self, broker):
        self.broker = broker
        self._numbers = itertools.count(1)
        self.token_ids = {}

    async def change(self, write):
        await self.broker.log.write(write)
        await self.broker.security.refresh()

    async def user(self, *rights, name=None, lifetime_ms=None):
        """Returns the `Authorization` value of a new user with these rights, and no others."""
        name = name or f"user{next(self._numbers)}"
        now_ms = self.broker.clock.now_ms()
        made = new_token(
            f"User:{name}",
            now_ms=now_ms,
            expires_at_ms=None if lifetime_ms is None else now_ms + lifetime_ms,
            created_by=str(ADMIN),
            random=lambda count: (next(self._numbers) << 8).to_bytes(count, "big"),
        )
        self.token_ids[name] = made.stored.id
        await self.change(lambda tx: security.add_token(tx, made.stored))
        await self.allow(name, *rights)
        return f"Bearer {made.text}"

    async def admin(self):
        return await self.user(name=ADMIN.name)

    async def allow(self, name, *rights):
        acls = [_acl(name, *right(each)) for each in rights]
        if acls:
            await self.change(lambda tx: security.put_acls(tx, acls))

    async def deny_all(self, name):
        await self.change(lambda tx: security.delete_acls(tx, [AclFilter(principal=f"User:{name}")]))

    async def revoke(self, name):
        await self.change(lambda tx: security.delete_token(tx, self.token_ids[name]))

    async def snapshot(self):
        """What a refused request must not change. Audit and metrics are not part of it."""
        broker = self.broker
        topics = broker.administration.topics(access=OPEN_ACCESS)
        described = [await broker.administration.describe_topic(each.name) for each in topics]
        subscriptions = await broker.queues.all()
        groups = await broker.administration.groups(access=OPEN_ACCESS)
        offsets = [
            (await broker.administration.describe_group(each.group_id, access=OPEN_ACCESS)).partitions
            for each in groups
        ]
        members = await broker.cluster.status()
        return (
            [(each.topic, each.partitions) for each in described],
            [(topic, each.name, each.config) for topic, each in subscriptions],
            sorted(each.group_id for each in groups),
            offsets,
            [each.is_draining for each in members.brokers],
            broker.security.version,
        )


def _acl(user, operation, kind, name):
    return Acl(kind, PatternType.LITERAL, name, f"User:{user}", "*", operation, Permission.ALLOW)


@contextlib.asynccontextmanager
async def secured_broker(**settings):
    """It has one topic with a message, a subscription and a group."""
    async with running_broker(security=True, super_users=(ADMIN,), **settings) as broker:
        await broker.messages.produce(TOPIC, [Record(value=b"first")], access=OPEN_ACCESS)
        await broker.queues.create(TOPIC, SUBSCRIPTION)
        await broker.administration.commit(GROUP, TOPIC, {0: 1})
        yield SecuredBroker(broker)
