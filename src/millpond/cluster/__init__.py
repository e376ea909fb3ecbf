"""Cluster membership: brokers and their leases, ownership of partitions and coordinator shards, and handovers."""

from millpond.cluster.joining import BrokerIdentity, addresses_of, join, leave, machine_of
from millpond.cluster.lease import Lease
from millpond.cluster.membership import Handover, Membership
from millpond.cluster.owned_shards import OwnedShards
from millpond.cluster.refresh_requests import RefreshRequests

__all__ = [
    "BrokerIdentity",
    "Handover",
    "Lease",
    "Membership",
    "OwnedShards",
    "RefreshRequests",
    "addresses_of",
    "join",
    "leave",
    "machine_of",
]
