"""Changes of the configs of groups and brokers: each is committed to the catalog, applied to this broker's state, and
announced to other brokers."""

from millpond.catalog import dynamic_configs
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.dynamic_configs import Alteration
from millpond.model.dynamic_configs import ConfigResource
from millpond.topology.catalog_access import WriteCatalog
from millpond.topology.catalog_view import CatalogView
from millpond.topology.changes_in_flight import ChangesInFlight
from millpond.topology.peers import Peers


class DynamicConfigChanges:
    def __init__(
        self, write: WriteCatalog, catalog_view: CatalogView, peers: Peers, in_flight: ChangesInFlight
    ) -> None:
        self._write = write
        self._catalog_view = catalog_view
        self._peers = peers
        self._in_flight = in_flight

    async def alter(self, resource: ConfigResource, alteration: Alteration) -> None:
        """`alteration` runs on the writer thread, while no other configs of groups and brokers change."""
        await self._in_flight.complete(self._alter(resource, alteration))

    async def _alter(self, resource: ConfigResource, alteration: Alteration) -> None:
        def alter(tx: CatalogTransaction) -> None:
            dynamic_configs.alter(tx, resource, alteration)

        await self._write(alter, own_commit=True)
        await self._catalog_view.reload_configs()
        await self._peers.notify_all_and_wait()
