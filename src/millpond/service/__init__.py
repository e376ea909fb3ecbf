"""What the faces that know single messages have in common: messages in and out, topics, groups, as plain values.

gRPC and HTTP only translate to and from these calls. Everything here speaks of offsets; what is shown to people as
a message number is an offset plus one.
"""

from millpond.service.administration import (
    Administration,
    GroupDescription,
    GroupPartition,
    PartitionDescription,
    TopicDescription,
)
from millpond.service.limits import ServiceLimits
from millpond.service.messages import Messages, Placed
from millpond.service.owners import Owners
from millpond.service.polling import OLDEST, Polled, Poller, PollRequest, Standing
from millpond.service.workers import Workers

__all__ = [
    "OLDEST",
    "Administration",
    "GroupDescription",
    "GroupPartition",
    "Messages",
    "Owners",
    "PartitionDescription",
    "Placed",
    "PollRequest",
    "Polled",
    "Poller",
    "ServiceLimits",
    "Standing",
    "TopicDescription",
    "Workers",
]
