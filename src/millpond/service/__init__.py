"""The service layer that the gRPC and HTTP interfaces share: single messages in and out, topics and groups, as plain
values.

gRPC and HTTP only translate to and from these calls. Everything here uses offsets; the message numbers that users see
are offsets plus one.
"""

from millpond.service.administration import (
    Administration,
    GroupDescription,
    GroupPartition,
    PartitionDescription,
    TopicDescription,
)
from millpond.service.cluster import BrokerStanding, Cluster, ClusterStanding
from millpond.service.limits import PayloadLimits, ServiceLimits
from millpond.service.messages import Messages, NewMessage, Placed, Spot
from millpond.service.owners import Leader, Owners
from millpond.service.payloads import Body, Payloads, Place
from millpond.service.polling import OLDEST, Polled, Poller, PollRequest, Standing
from millpond.service.workers import Workers

__all__ = [
    "OLDEST",
    "Administration",
    "Body",
    "BrokerStanding",
    "Cluster",
    "ClusterStanding",
    "GroupDescription",
    "GroupPartition",
    "Leader",
    "Messages",
    "NewMessage",
    "Owners",
    "PartitionDescription",
    "PayloadLimits",
    "Payloads",
    "Place",
    "Placed",
    "PollRequest",
    "Polled",
    "Poller",
    "ServiceLimits",
    "Spot",
    "Standing",
    "TopicDescription",
    "Workers",
]
