"""Kafka consumer groups: members, generations and committed offsets.

Reading order: `members`, `group_state` and `consumer_group` are the pure state machine, `claims` is the one for readers
that are not members, `loaded_groups` connects the machine to time, storage and callers, and `coordinator` is what the
interfaces call.
"""

from millpond.groups.claims import Claim
from millpond.groups.consumer_protocol import CONSUMER, assigned_partitions
from millpond.groups.coordinator import CommitSender, CommittedOffsets, GroupListing, Groups
from millpond.groups.limits import GroupLimits
from millpond.groups.members import Protocol
from millpond.groups.messages import (
    Description,
    GroupPhase,
    Joined,
    JoinRequest,
    LeaveRequest,
    Synced,
    SyncRequest,
)

__all__ = [
    "CONSUMER",
    "Claim",
    "CommitSender",
    "CommittedOffsets",
    "Description",
    "GroupLimits",
    "GroupListing",
    "GroupPhase",
    "Groups",
    "JoinRequest",
    "Joined",
    "LeaveRequest",
    "Protocol",
    "SyncRequest",
    "Synced",
    "assigned_partitions",
]
