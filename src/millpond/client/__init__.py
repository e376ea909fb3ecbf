"""The client library: producers, consumers and administration over gRPC, with and without an event loop.

Reading order: `lane` (the pure state machine behind a producer), `sender` (which drives it), `topic_producer`,
`producer`, `topic_reader`, `consumer`, `admin`, `payloads`; for queues `inbox` and `outbox` (pure), `link` (which
drives them), `subscriber`, `publisher`; `sync_producer`, `sync` and `sync_queues` wrap them for code without an event
loop. `arguments` checks the arguments of public calls; `sources` finds address, TLS and credentials, which `security`
adds to connections. Nothing here needs the broker's code.
"""

from millpond.client.admin import (
    AsyncAdmin,
    BrokerDescription,
    Config,
    Group,
    GroupDescription,
    GroupPosition,
    Member,
    Partition,
    Topic,
    TopicDescription,
)
from millpond.client.cluster import Cluster, ClusterBroker
from millpond.client.consumer import AsyncConsumer
from millpond.client.delivery import Acknowledgement, AsyncDelivery, Metadata, Outcome
from millpond.client.message import Message, Placed, Polled, Sent
from millpond.client.payloads import AsyncPayloads, PayloadReference
from millpond.client.producer import AsyncProducer
from millpond.client.publisher import AsyncPublisher
from millpond.client.security import Tls
from millpond.client.security_administration import (
    AclEntry,
    CreatedToken,
    QuotaDescription,
    TokenDescription,
    UserDescription,
)
from millpond.client.subscriber import AsyncSubscriber
from millpond.client.subscriptions import (
    Subscription,
    SubscriptionConsumer,
    SubscriptionFailure,
    SubscriptionKey,
    SubscriptionPartition,
    SubscriptionState,
)
from millpond.client.sync import Admin, Consumer, Payloads
from millpond.client.sync_producer import Producer
from millpond.client.sync_queues import Delivery, Publisher, Subscriber, Transaction
from millpond.client.transaction import AsyncTransaction

__all__ = [
    "Acknowledgement",
    "AclEntry",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncPayloads",
    "AsyncProducer",
    "AsyncPublisher",
    "AsyncSubscriber",
    "AsyncTransaction",
    "BrokerDescription",
    "Cluster",
    "ClusterBroker",
    "Config",
    "Consumer",
    "CreatedToken",
    "Delivery",
    "Group",
    "GroupDescription",
    "GroupPosition",
    "Member",
    "Message",
    "Metadata",
    "Outcome",
    "Partition",
    "PayloadReference",
    "Payloads",
    "Placed",
    "Polled",
    "Producer",
    "Publisher",
    "QuotaDescription",
    "Sent",
    "Subscriber",
    "Subscription",
    "SubscriptionConsumer",
    "SubscriptionFailure",
    "SubscriptionKey",
    "SubscriptionPartition",
    "SubscriptionState",
    "Tls",
    "TokenDescription",
    "Topic",
    "TopicDescription",
    "Transaction",
    "UserDescription",
]
