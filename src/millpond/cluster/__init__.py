"""Cluster membership: brokers and their leases, ownership of partitions and coordinator shards, and handovers."""

from millpond.cluster.joining import BrokerIdentity, addresses_of, join, leave, machine_of
from millpond.cluster.lease import Lease, Shards
from millpond.cluster.membership import Handover, Membership
from millpond.cluster.refresh_requests import RefreshRequests

__all__ = [
    "BrokerIdentity",
    "Handover",
    "Lease",
    "Membership",
    "RefreshRequests",
    "Shards",
    "addresses_of",
    "join",
    "leave",
    "machine_of",
]
