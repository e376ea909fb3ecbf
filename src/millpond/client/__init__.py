"""The client library: producers, consumers and administration over gRPC, with and without an event loop.

Reading order: `lane` (the pure machine behind a producer), `sender` (which drives it), `producer`, `consumer`,
`admin`; `sync` wraps them for code without an event loop. Nothing here needs the broker's code.
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
from millpond.client.consumer import AsyncConsumer
from millpond.client.message import Message, Placed, Polled, Sent
from millpond.client.producer import AsyncProducer
from millpond.client.sync import Admin, Consumer, Producer

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "BrokerDescription",
    "Config",
    "Consumer",
    "Group",
    "GroupDescription",
    "GroupPosition",
    "Member",
    "Message",
    "Partition",
    "Placed",
    "Polled",
    "Producer",
    "Sent",
    "Topic",
    "TopicDescription",
]
