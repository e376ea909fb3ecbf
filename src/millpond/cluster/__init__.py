"""Cluster membership: how brokers join and leave, renew their leases, take over from dead brokers, and hand over."""

from millpond.cluster.joining import BrokerIdentity, join, leave
from millpond.cluster.membership import Handover, Membership

__all__ = ["BrokerIdentity", "Handover", "Membership", "join", "leave"]
