"""The same clients for code without an event loop: `Consumer`, `Admin`, `Payloads`.

    with Consumer("orders") as consumer:
        messages, read_from = consumer.poll()

All of them share one event loop in a background thread. Safe to use from several threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from millpond.client.admin import (
    AsyncAdmin,
    BrokerDescription,
    Group,
    GroupDescription,
    Topic,
    TopicDescription,
)
from millpond.client.background import on_background_loop, run
from millpond.client.cluster import Cluster
from millpond.client.consumer import BYTES_MAX, MESSAGES_MAX, AsyncConsumer, ConsumerStart
from millpond.client.message import Message, NextPosition, Polled, ReadFrom
from millpond.client.payloads import TIMEOUT_S as TRANSFER_TIMEOUT_S
from millpond.client.payloads import AsyncPayloads, PayloadReference
from millpond.client.producer import TIMEOUT_S
from millpond.client.reprs import sync_repr
from millpond.client.security import TlsArgument, TokenArgument
from millpond.client.security_administration import (
    AclEntry,
    CreatedToken,
    QuotaDescription,
    TokenDescription,
    UserDescription,
)
from millpond.client.sources import ServerAddresses
from millpond.client.subscriptions import Configs, Subscription, SubscriptionState
from millpond.client.subscriptions import NewSubscriptionStart as SubscriptionStart
from millpond.records import Buffer


class Consumer:
    """Reads all partitions of its topics, one partition, or its share in a group. Partitions that are added later are
    read from their first message on.

    `topics` is a name or a list of names. For a name, a position is a number if there is one partition, and numbers by
    partition otherwise; for a list it is a mapping of names to such positions.

    `read_from` is a message number, which counts from 1, or numbers by partition, "earliest" (the default), "latest",
    or a datetime. `offset` is the same position as Kafka counts, from 0, or offsets by partition. For a list of topics,
    both may be a mapping of names to positions. A position below the oldest message continues at the oldest; a position
    above the end waits until that message is written.

    `group` makes the consumer a member of a consumer group, with its first poll: the members, Kafka's consumers among
    them, share the partitions of the topics, and the group keeps their positions. A member that does not poll for 5
    minutes leaves, and joins again in its next poll. With a `partition` the consumer is no member: positions are kept
    under the name of the group, which is refused (GroupInUse) while it has members. `position_file` keeps the positions
    of one topic in a file.

    `strict` refuses positions outside the topic (OffsetOutOfRange). It also refuses a topic that was created again
    since its positions were kept or read (TopicReplaced); without `strict`, reading begins at the oldest message of the
    new topic. `uncommitted` also returns messages of transactions that are open or aborted.

    `address` is the broker to try first, or several; `timeout` is the time that a broker has to respond. `tls` is True,
    the path of a CA file or a `Tls`; `username` and `password`, or `token`, prove who you are."""

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        address: ServerAddresses = None,
        read_from: ConsumerStart | Mapping[str, ConsumerStart] | None = None,
        offset: ReadFrom | Mapping[str, ReadFrom] | None = None,
        partition: int | None = None,
        group: str | None = None,
        position_file: str | Path | None = None,
        strict: bool = False,
        uncommitted: bool = False,
        timeout: float = TIMEOUT_S,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        self._consumer = run(
            on_background_loop(
                lambda: AsyncConsumer(
                    topics,
                    address=address,
                    read_from=read_from,
                    offset=offset,
                    partition=partition,
                    group=group,
                    position_file=position_file,
                    strict=strict,
                    uncommitted=uncommitted,
                    timeout=timeout,
                    tls=tls,
                    username=username,
                    password=password,
                    token=token,
                )
            )
        )
        self.topics = self._consumer.topics

    def poll(
        self, wait: float = 0.0, *, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX
    ) -> Polled:
        """Messages from the position on, and the next position. Waits up to `wait` seconds for a first
        message. Several tasks or threads may poll at the same time: they wait for each other, and each message goes to
        one of them only. A batch that cannot be decoded raises UnreadableBatch, after the messages before it were
        returned; `seek` skips it."""
        return run(self._consumer.poll(wait, messages_max=messages_max, bytes_max=bytes_max))

    def __iter__(self) -> Iterator[Message]:
        """Every message, and new ones as they arrive; the iteration does not end by itself. A message counts
        as processed when the next one is requested. Positions are kept once for each poll, in a group also every few
        seconds, and when the assignment changes."""
        while True:
            lent = run(self._consumer.lend())
            while (message := lent.take()) is not None:
                yield message

    @property
    def read_from(self) -> NextPosition | dict[str, NextPosition | None] | None:
        """The position of the next poll, by topic if the consumer has a list of them. Before the first poll it is the
        number that the consumer was created with; None if that is a name or a time, or if positions are kept, since a
        broker has to be asked (see `positions`)."""
        return self._consumer.read_from

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions that this consumer reads, by topic: in a group those of its share, else all that it has found.
        Empty lists before the first poll, and while other members have all partitions."""
        return self._consumer.assignment

    def seek(
        self,
        read_from: ConsumerStart | Mapping[str, ConsumerStart] | None = None,
        *,
        offset: ReadFrom | Mapping[str, ReadFrom] | None = None,
    ) -> None:
        """Continue at another position, which is given as for a new consumer. Topics and partitions that it does not
        name keep their positions, and so do those that other members of its group read. Waits for a poll in
        progress."""
        run(self._consumer.seek(read_from, offset=offset))

    def positions(self) -> dict[int, int] | dict[str, dict[int, int]]:
        """The position of the next poll by partition, or by topic and partition if the consumer has a list of topics.
        In a group, of the partitions that are assigned to this consumer. Also works before the first poll."""
        return run(self._consumer.positions())

    def commit(self) -> None:
        """Keep the positions now, in the file or group of this consumer. Raises a GroupError if the consumer has lost
        its partitions to other members of the group, which read the messages again."""
        run(self._consumer.commit())

    def close(self) -> None:
        """Keep the positions, leave the group, and close. A poll that is waiting fails. The message at which an
        iteration ended does not count as processed."""
        run(self._consumer.close())

    def __repr__(self) -> str:
        return sync_repr(self._consumer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self._consumer.__aexit__(kind, error, trace))


class Admin:
    """Creates, describes, changes and deletes topics, groups, subscriptions, users, API tokens, ACLs and quotas, and
    describes brokers.

    A broker acts on a create or delete request at most once. If the response is lost, the call raises
    `OutcomeUnknown` or `TimedOut`: check the state before you repeat it.

    `address` is the broker to try first, or several; `timeout` is the maximum time for a call, including retries. `tls`
    is True, the path of a CA file or a `Tls`; `username` and `password`, or `token`, prove who you are."""

    def __init__(
        self,
        *,
        address: ServerAddresses = None,
        timeout: float = TIMEOUT_S,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        self._admin = run(
            on_background_loop(
                lambda: AsyncAdmin(
                    address=address,
                    timeout=timeout,
                    tls=tls,
                    username=username,
                    password=password,
                    token=token,
                )
            )
        )

    def create_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic. Without `partitions` the broker chooses how many."""
        return run(self._admin.create_topic(name, partitions=partitions, configs=configs))

    def list_topics(self) -> list[Topic]:
        """All topics, ordered by name."""
        return run(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic with its partitions and its configs."""
        return run(self._admin.describe_topic(name))

    def alter_topic(
        self, name: str, *, partitions: int | None = None, configs: Mapping[str, str | None] | None = None
    ) -> Topic:
        """Add partitions, change configs (None resets to the default), or both."""
        return run(self._admin.alter_topic(name, partitions=partitions, configs=configs))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its messages and its subscriptions."""
        run(self._admin.delete_topic(name))

    def delete_messages(self, topic: str, *, before: int | None, partition: int = 0) -> int:
        """Delete the messages below number `before` (None: all of them). Returns the number of the oldest
        message left."""
        return run(self._admin.delete_messages(topic, before=before, partition=partition))

    def find_by_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        """By partition: the number of the first message at or after a time, or the number that the next
        message will get."""
        return run(self._admin.find_by_time(topic, timestamp_ms))

    def list_groups(self) -> list[Group]:
        """All groups, ordered by name."""
        return run(self._admin.list_groups())

    def describe_group(self, name: str) -> GroupDescription:
        """A group with its members, its positions and its lag."""
        return run(self._admin.describe_group(name))

    def commit_positions(
        self,
        group: str,
        topic: str,
        read_from: ConsumerStart | None = None,
        *,
        offset: ReadFrom | None = None,
    ) -> None:
        """Set the positions of a group without members. They are given as for a consumer; numbers or offsets by
        partition set those of the partitions that they name."""
        run(self._admin.commit_positions(group, topic, read_from, offset=offset))

    def delete_group(self, name: str) -> None:
        """Delete a group without members, with its positions."""
        run(self._admin.delete_group(name))

    def create_subscription(
        self,
        topic: str,
        name: str,
        config: Configs | None = None,
        *,
        read_from: SubscriptionStart | None = None,
        offset: int | None = None,
    ) -> Subscription:
        """The topic must exist. The subscription begins at `read_from` (a message number, "earliest", which is the
        default, "latest", or a datetime) or at `offset`, which counts from 0, in every partition."""
        return run(self._admin.create_subscription(topic, name, config, read_from=read_from, offset=offset))

    def alter_subscription(self, topic: str, name: str, config: Configs) -> Subscription:
        """Change settings of a subscription. Settings that are not named stay unchanged."""
        return run(self._admin.alter_subscription(topic, name, config))

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription and its state. The topic's messages stay."""
        run(self._admin.delete_subscription(topic, name))

    def list_subscriptions(self, topic: str | None = None) -> list[Subscription]:
        """The subscriptions of one topic, or of all."""
        return run(self._admin.list_subscriptions(topic))

    def describe_subscription(
        self, topic: str, name: str, *, keys_max: int = 10, failing_max: int = 10
    ) -> SubscriptionState:
        """The state of a subscription, with the reasons why keys make no progress and why messages failed: of each
        partition at most `keys_max` keys and `failing_max` messages. Asks every broker that owns partitions of the
        topic."""
        return run(self._admin.describe_subscription(topic, name, keys_max=keys_max, failing_max=failing_max))

    def reset_subscription(
        self,
        topic: str,
        name: str,
        read_from: SubscriptionStart | None = None,
        *,
        offset: int | None = None,
    ) -> None:
        """Start again at another position, which is given as for a new subscription. Consumers stay attached, and
        continue from there."""
        run(self._admin.reset_subscription(topic, name, read_from, offset=offset))

    def redrive(self, topic: str, name: str, *, messages_max: int = 0) -> int:
        """Send dead letters back to this subscription: at most `messages_max`, or all of them if it is 0.
        Returns how many were sent back."""
        return run(self._admin.redrive(topic, name, messages_max=messages_max))

    def unblock(self, topic: str, name: str) -> int:
        """Deliver messages again that were blocked after their last attempt. Returns how many there were."""
        return run(self._admin.unblock(topic, name))

    def describe_broker(self) -> BrokerDescription:
        """The broker that responds: its version, its cluster and its listeners."""
        return run(self._admin.describe_broker())

    def cluster(self) -> Cluster:
        """The brokers of the cluster, and how much each of them owns."""
        return run(self._admin.cluster())

    def drain(self, node_id: int, *, undo: bool = False) -> Cluster:
        """Make a broker hand over everything it owns, and receive nothing until this is undone. Returns when
        the request is recorded; `cluster` shows the progress."""
        return run(self._admin.drain(node_id, undo=undo))

    def rebalance(self) -> Cluster:
        """Make all brokers check again whether ownership is even. They also check by themselves after every
        change."""
        return run(self._admin.rebalance())

    def list_users(self) -> list[UserDescription]:
        """All users with a password, ordered by name."""
        return run(self._admin.list_users())

    def set_password(self, user: str, password: str) -> None:
        """Create a user, or replace its password. Connections that used the old password are closed."""
        run(self._admin.set_password(user, password))

    def delete_user(self, user: str) -> None:
        """Delete the password of a user. Its tokens stay valid, and its ACLs are kept."""
        run(self._admin.delete_user(user))

    def list_tokens(self) -> list[TokenDescription]:
        """All API tokens, without their texts."""
        return run(self._admin.list_tokens())

    def create_token(
        self,
        principal: str,
        *,
        expires_in: float | None = None,
        expires_at: datetime | int | None = None,
        description: str = "",
    ) -> CreatedToken:
        """Create an API token for a principal, such as "User:alice", which needs no password. It expires after
        `expires_in` seconds, or at `expires_at` (a datetime, or milliseconds since 1970), or never. Only the result
        has its text."""
        return run(
            self._admin.create_token(
                principal, expires_in=expires_in, expires_at=expires_at, description=description
            )
        )

    def delete_token(self, token_id: str) -> None:
        """Delete an API token by its id. Connections that used it are closed."""
        run(self._admin.delete_token(token_id))

    def list_acls(
        self,
        *,
        resource_type: str | None = None,
        name: str | None = None,
        pattern_type: str | None = None,
        principal: str | None = None,
        host: str | None = None,
        operation: str | None = None,
        permission: str | None = None,
    ) -> list[AclEntry]:
        """The ACLs that have the given values. The `pattern_type` "match" selects those that apply to the resource
        `name`: its own, those of prefixes, and those of `*`."""
        return run(
            self._admin.list_acls(
                resource_type=resource_type,
                name=name,
                pattern_type=pattern_type,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
        )

    def create_acls(self, acls: Sequence[AclEntry]) -> None:
        """Create ACLs, all or none. One that exists is kept."""
        run(self._admin.create_acls(acls))

    def delete_acls(
        self,
        *,
        resource_type: str | None = None,
        name: str | None = None,
        pattern_type: str | None = None,
        principal: str | None = None,
        host: str | None = None,
        operation: str | None = None,
        permission: str | None = None,
    ) -> list[AclEntry]:
        """Delete the ACLs that `list_acls` would return, and return them. At least one value has to be given."""
        return run(
            self._admin.delete_acls(
                resource_type=resource_type,
                name=name,
                pattern_type=pattern_type,
                principal=principal,
                host=host,
                operation=operation,
                permission=permission,
            )
        )

    def list_quotas(self) -> list[QuotaDescription]:
        """All quotas, one entry for each user, client id, user with client id, address or topic that has any."""
        return run(self._admin.list_quotas())

    def alter_quotas(
        self,
        quotas: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        topic: str | None = None,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of a user, a client id, a user with a client id, an address (`ip`), or a topic; None removes
        a quota. An empty name is every user, client id or address that has no quota of its own; `orders-*` is all
        topics with this prefix. The keys are "producer_byte_rate", "consumer_byte_rate", "request_percentage" and
        "controller_mutation_rate"; of an address "connection_creation_rate"; of a topic "stored_bytes". With
        `validate_only` nothing is changed."""
        run(
            self._admin.alter_quotas(
                quotas, user=user, client_id=client_id, ip=ip, topic=topic, validate_only=validate_only
            )
        )

    def close(self) -> None:
        """Close the connections."""
        run(self._admin.close())

    def __repr__(self) -> str:
        return sync_repr(self._admin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Payloads:
    """Bodies of messages, in the object store. `topic` is where `upload` puts them unless it names another one.
    `address` is the broker to try first, or several. `timeout` limits how long a transfer may make no progress, not how
    long it may take. `tls` is True, the path of a CA file or a `Tls`; `username` and `password`, or `token`, prove who
    you are."""

    def __init__(
        self,
        topic: str | None = None,
        *,
        address: ServerAddresses = None,
        timeout: float = TRANSFER_TIMEOUT_S,
        tls: TlsArgument = None,
        username: str | None = None,
        password: str | None = None,
        token: TokenArgument = None,
    ) -> None:
        self._payloads = run(
            on_background_loop(
                lambda: AsyncPayloads(
                    topic,
                    address=address,
                    timeout=timeout,
                    tls=tls,
                    username=username,
                    password=password,
                    token=token,
                )
            )
        )
        self.topic = self._payloads.topic

    def upload(self, body: Buffer, *, topic: str | None = None) -> PayloadReference:
        """Returns when the body is durable. A failed upload leaves nothing, or bytes that are collected later."""
        return run(self._payloads.upload(body, topic=topic))

    def download(self, reference: PayloadReference) -> bytes:
        """The body. `CorruptPayload` if it does not match the message's reference."""
        return run(self._payloads.download(reference))

    def close(self) -> None:
        """Close the connections. A transfer in progress fails."""
        run(self._payloads.close())

    def __repr__(self) -> str:
        return sync_repr(self._payloads)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
