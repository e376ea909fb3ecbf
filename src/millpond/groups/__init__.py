"""Kafka's groups: members, generations and committed offsets.

Reading order: `classic` is the pure state machine of the classic protocol, `consumer` the one of the consumer protocol
(KIP-848), `share` the one of share groups (KIP-932). `loaded_groups` connects the machines to time, storage and
callers, and `coordinator` is what the interfaces call.
"""

from millpond.groups.classic.members import Protocol
from millpond.groups.classic.messages import (
    Description,
    GroupPhase,
    Joined,
    JoinRequest,
    LeaveRequest,
    Synced,
    SyncRequest,
)
from millpond.groups.consumer.messages import (
    JOIN_EPOCH,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    MemberDescription,
)
from millpond.groups.consumer_protocol import CONSUMER, assigned_partitions
from millpond.groups.coordinator import NO_MEMBER, CommitSender, CommittedOffsets, GroupListing, Groups
from millpond.groups.limits import GroupLimits
from millpond.groups.share.messages import (
    SHARE,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResponse,
    ShareMemberDescription,
)

__all__ = [
    "CONSUMER",
    "JOIN_EPOCH",
    "NO_MEMBER",
    "SHARE",
    "CommitSender",
    "CommittedOffsets",
    "ConsumerGroupDescription",
    "ConsumerHeartbeat",
    "ConsumerHeartbeatResponse",
    "Description",
    "GroupLimits",
    "GroupListing",
    "GroupPhase",
    "Groups",
    "JoinRequest",
    "Joined",
    "LeaveRequest",
    "MemberDescription",
    "Protocol",
    "ShareGroupDescription",
    "ShareHeartbeat",
    "ShareHeartbeatResponse",
    "ShareMemberDescription",
    "SyncRequest",
    "Synced",
    "assigned_partitions",
]
