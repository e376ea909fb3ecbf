"""Subscriptions: consume a topic as a queue, with acknowledgements, retries, key order and dead letters."""

from millpond.queues.active_subscription import ActiveSubscription
from millpond.queues.attachment import Attachment, Deliveries, Event, PartitionLost, Revocation
from millpond.queues.dispatcher_results import AckResult, QueueDelivery
from millpond.queues.limits import QueueLimits
from millpond.queues.pull_consumers import PullConsumers, Pulled, PullerName
from millpond.queues.queues import Queues
from millpond.queues.share_acks import AckRange, AckRefusal, malformed
from millpond.queues.share_consumers import MemberName, ShareConsumers, all_saved
from millpond.queues.share_subscriptions import SharePosition, ShareSubscriptions
from millpond.queues.stored_subscriptions import EARLIEST, StartAt, SubscriptionStart
from millpond.queues.subscription_status import ConsumerStatus, PartitionStatus, SubscriptionStatus

__all__ = [
    "EARLIEST",
    "AckRange",
    "AckRefusal",
    "AckResult",
    "ActiveSubscription",
    "Attachment",
    "ConsumerStatus",
    "Deliveries",
    "Event",
    "MemberName",
    "PartitionLost",
    "PartitionStatus",
    "PullConsumers",
    "Pulled",
    "PullerName",
    "QueueDelivery",
    "QueueLimits",
    "Queues",
    "Revocation",
    "ShareConsumers",
    "SharePosition",
    "ShareSubscriptions",
    "StartAt",
    "SubscriptionStart",
    "SubscriptionStatus",
    "all_saved",
    "malformed",
]
