"""Which broker owns what, as this broker last read it from the catalog; its lease; and its requests to other brokers
to read the catalog."""

from millpond.topology.addresses import addresses_of, machine_of
from millpond.topology.lease import Lease, Shards
from millpond.topology.peers import Peers
from millpond.topology.refresh_requests import RefreshRequests
from millpond.topology.shard_ownership import ShardOwnership
from millpond.topology.topics import TopicRegistry
from millpond.topology.view import TopologyView

__all__ = [
    "Lease",
    "Peers",
    "RefreshRequests",
    "ShardOwnership",
    "Shards",
    "TopicRegistry",
    "TopologyView",
    "addresses_of",
    "machine_of",
]
