"""The service layer that the gRPC and HTTP interfaces share: single messages in and out, topics and groups, as plain
values.

gRPC and HTTP only translate to and from these calls. Everything here uses offsets; the message numbers that users see
are offsets plus one.
"""

from millpond.service.administration import (
    Administration,
    GroupDetails,
    GroupPartition,
    PartitionDescription,
    TopicDetails,
)
from millpond.service.audit_topic import AuditTopic
from millpond.service.audited_topic_changes import AuditedTopicChanges
from millpond.service.browser_login import BrowserLogin, OidcCallback
from millpond.service.cluster import BrokerStatus, ClusterAdministration, ClusterStatus
from millpond.service.dynamic_configs import ConfigAdministration
from millpond.service.limits import PayloadLimits, ServiceLimits
from millpond.service.messages import AppendIndex, MessageWriter, NewMessage, StoredMessage
from millpond.service.metrics_page import MetricsPage
from millpond.service.owners import Leader, Owners
from millpond.service.payloads import PayloadBody, PayloadTransfers, TransferTarget
from millpond.service.polling import OLDEST, Poller, PollRequest, PollResult, ReadPosition
from millpond.service.security_administration import SecurityAdministration, UserMechanism
from millpond.service.share_groups import ShareGroups, TopicPositions
from millpond.service.workers import Workers

__all__ = [
    "OLDEST",
    "Administration",
    "AppendIndex",
    "AuditTopic",
    "AuditedTopicChanges",
    "BrokerStatus",
    "BrowserLogin",
    "ClusterAdministration",
    "ClusterStatus",
    "ConfigAdministration",
    "GroupDetails",
    "GroupPartition",
    "Leader",
    "MessageWriter",
    "MetricsPage",
    "NewMessage",
    "OidcCallback",
    "Owners",
    "PartitionDescription",
    "PayloadBody",
    "PayloadLimits",
    "PayloadTransfers",
    "PollRequest",
    "PollResult",
    "Poller",
    "ReadPosition",
    "SecurityAdministration",
    "ServiceLimits",
    "ShareGroups",
    "StoredMessage",
    "TopicDetails",
    "TopicPositions",
    "TransferTarget",
    "UserMechanism",
    "Workers",
]
