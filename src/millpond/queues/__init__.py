"""Subscriptions: consume a topic as a queue, with acknowledgements, retries, key order and dead letters."""

from millpond.queues.active import Active
from millpond.queues.attachment import Attachment, Deliveries, Event, PartitionLost, Revocation
from millpond.queues.describing import ConsumerStanding, PartitionStanding, SubscriptionStanding
from millpond.queues.limits import QueueLimits
from millpond.queues.outcomes import Answer
from millpond.queues.pulling import Pulled, PullerName, Pulling
from millpond.queues.queues import Queues
from millpond.queues.stored import EARLIEST, Start, StartAt

__all__ = [
    "EARLIEST",
    "Active",
    "Answer",
    "Attachment",
    "ConsumerStanding",
    "Deliveries",
    "Event",
    "PartitionLost",
    "PartitionStanding",
    "Pulled",
    "PullerName",
    "Pulling",
    "QueueLimits",
    "Queues",
    "Revocation",
    "Start",
    "StartAt",
    "SubscriptionStanding",
]
