"""Cluster membership: how brokers join and leave, renew their leases, take over from dead brokers, and hand over."""

from millpond.cluster.joining import BrokerIdentity, join, leave
from millpond.cluster.membership import Membership

__all__ = ["BrokerIdentity", "Membership", "join", "leave"]
