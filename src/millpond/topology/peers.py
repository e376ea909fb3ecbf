"""The other brokers of the cluster, which this broker asks to read the catalog after it has changed something there.
Only an optimisation: without it they do so periodically."""

from millpond.model.ids import Session, TopicPartition
from millpond.topology.addresses import addresses_of
from millpond.topology.refresh_requests import RefreshRequests
from millpond.topology.view import TopologyView


class Peers:
    def __init__(
        self, view: TopologyView, session: Session, refresh_requests: RefreshRequests, *, may_exist: bool
    ) -> None:
        """`may_exist` tells whether other brokers can use the catalog at all."""
        self.may_exist = may_exist
        self._view = view
        self._session = session
        self._refresh_requests = refresh_requests

    def notify_all(self) -> None:
        """Request a refresh of all other brokers, without waiting."""
        self._refresh_requests.send_soon(self._others())

    async def notify_all_and_wait(self) -> None:
        """Returns when all other brokers have refreshed, or did not respond."""
        await self._refresh_requests.send(self._others())

    def notify_owner(self, topic_partition: TopicPartition) -> None:
        """Request a refresh of the owner of a partition to which this broker has appended."""
        topology = self._view.current
        owner = topology.partitions.get(topic_partition)
        member = topology.member(owner.session) if owner is not None else None
        if member is not None and (address := addresses_of(member).get("grpc")):
            self._refresh_requests.send_one_soon(address)

    def renew_channels(self) -> None:
        """Create new connections for further requests, because the certificate of this broker has changed."""
        self._refresh_requests.renew_channels()

    async def close(self) -> None:
        """Cancel the requests in flight and close the connections."""
        await self._refresh_requests.close()

    def _others(self) -> list[str]:
        members = [each for each in self._view.current.members.values() if each.session != self._session]
        return [address for each in members if (address := addresses_of(each).get("grpc"))]
