"""Kafka's consumer groups: who is a member, which generation it is, and what has been consumed.

Reading order: `members` and `state` are the pure machine, `claims` is that of readers which are no members, `memory`
gives the machine time, storage and callers, and `coordinator` is the door through which the faces come.
"""

from millpond.groups.claims import Claim
from millpond.groups.coordinator import CommittedOffsets, GroupListing, Groups, MemberIdentity
from millpond.groups.limits import GroupLimits
from millpond.groups.members import Protocol
from millpond.groups.messages import Description, Joined, JoinRequest, Leaving, State, Synced, SyncRequest
from millpond.groups.subscription import CONSUMER, assigned_partitions

__all__ = [
    "CONSUMER",
    "Claim",
    "CommittedOffsets",
    "Description",
    "GroupLimits",
    "GroupListing",
    "Groups",
    "JoinRequest",
    "Joined",
    "Leaving",
    "MemberIdentity",
    "Protocol",
    "State",
    "SyncRequest",
    "Synced",
    "assigned_partitions",
]
