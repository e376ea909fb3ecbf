"""Which broker owns what, as this broker last read it from the catalog; its lease; and its requests to other brokers
to read the catalog."""

from millpond.topology.addresses import addresses_of, machine_of
from millpond.topology.broker_configs import BrokerConfigs
from millpond.topology.catalog_access import ReadCatalog, WriteCatalog
from millpond.topology.catalog_view import CatalogView
from millpond.topology.changes_in_flight import ChangesInFlight
from millpond.topology.dynamic_config_changes import DynamicConfigChanges
from millpond.topology.dynamic_configs import DynamicConfigView
from millpond.topology.lease import Lease
from millpond.topology.owned_rows import CompactionMark, OwnedRows, Seen
from millpond.topology.owned_shards import OwnedShards
from millpond.topology.peers import Peers
from millpond.topology.refresh_requests import RefreshRequests
from millpond.topology.topic_changes import TopicChanges
from millpond.topology.topics import TopicRegistry
from millpond.topology.view import TopologyView

__all__ = [
    "BrokerConfigs",
    "CatalogView",
    "ChangesInFlight",
    "CompactionMark",
    "DynamicConfigChanges",
    "DynamicConfigView",
    "Lease",
    "OwnedRows",
    "OwnedShards",
    "Peers",
    "ReadCatalog",
    "RefreshRequests",
    "Seen",
    "TopicChanges",
    "TopicRegistry",
    "TopologyView",
    "WriteCatalog",
    "addresses_of",
    "machine_of",
]
