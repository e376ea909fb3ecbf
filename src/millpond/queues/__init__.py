"""Subscriptions: consume a topic as a queue, with acknowledgements, retries, key order and dead letters."""

from millpond.queues.active import Active
from millpond.queues.attachment import Attachment, Deliveries, Event, PartitionLost, Revocation
from millpond.queues.describing import ConsumerStatus, PartitionStatus, SubscriptionStatus
from millpond.queues.limits import QueueLimits
from millpond.queues.outcomes import AckResult
from millpond.queues.pulling import Pulled, PullerName, Pulling
from millpond.queues.queues import Queues
from millpond.queues.stored import EARLIEST, StartAt, SubscriptionStart

__all__ = [
    "EARLIEST",
    "AckResult",
    "Active",
    "Attachment",
    "ConsumerStatus",
    "Deliveries",
    "Event",
    "PartitionLost",
    "PartitionStatus",
    "Pulled",
    "PullerName",
    "Pulling",
    "QueueLimits",
    "Queues",
    "Revocation",
    "StartAt",
    "SubscriptionStart",
    "SubscriptionStatus",
]
