"""The brokers of a cluster as administrators see them, on an event loop: part of `AsyncAdmin`."""

from collections.abc import Mapping
from dataclasses import dataclass

from millpond.client import arguments
from millpond.client.calls import CLUSTER, Connections
from millpond.stubs import cluster_pb2 as pb


@dataclass(frozen=True, slots=True)
class ClusterBroker:
    """`lease_ms` is the rest of its lease; below 0 the lease has expired, and other brokers will take over
    what it owns."""

    node_id: int
    listeners: Mapping[str, str]
    """The addresses of its interfaces: `kafka`, `grpc`, `http`."""
    machine: str
    is_draining: bool
    partitions: int
    coordinator_shards: int
    lease_ms: int

    @property
    def is_empty(self) -> bool:
        """Whether it owns nothing, so that it can be stopped without effect on clients."""
        return not self.partitions and not self.coordinator_shards


@dataclass(frozen=True, slots=True)
class Cluster:
    """`version` counts changes of topics, brokers and owners; `unowned` is the number of partitions without a
    live owner."""

    id: str
    version: int
    brokers: list[ClusterBroker]
    partitions: int
    unowned: int

    def broker(self, node_id: int) -> ClusterBroker | None:
        """The broker of this id; None if there is none."""
        return next((each for each in self.brokers if each.node_id == node_id), None)

    @property
    def is_even(self) -> bool:
        """Whether everything is owned by brokers that stay, and their shares differ by one at most."""
        leaving = [each for each in self.brokers if each.is_draining and not each.is_empty]
        staying = [each for each in self.brokers if not each.is_draining]
        shares = ([each.partitions for each in staying], [each.coordinator_shards for each in staying])
        return not self.unowned and not leaving and all(max(each) - min(each) <= 1 for each in shares if each)


class ClusterCalls:
    """Every broker can respond for the whole cluster."""

    _connections: Connections

    async def cluster(self) -> Cluster:
        """The brokers of the cluster, and how much each of them owns."""
        return _cluster(
            await self._connections.call(CLUSTER, "Status", pb.ClusterStatusRequest(), pb.ClusterStatus)
        )

    async def drain(self, node_id: int, *, undo: bool = False) -> Cluster:
        """Make a broker hand over everything it owns, and receive nothing until this is undone. Returns when
        the request is recorded; `cluster` shows the progress."""
        number = arguments.integer("node_id", node_id, 0, arguments.UINT32_MAX)
        request = pb.DrainRequest(node_id=number, undo=arguments.flag("undo", undo))
        return _cluster(await self._connections.call(CLUSTER, "Drain", request, pb.ClusterStatus))

    async def rebalance(self) -> Cluster:
        """Make all brokers check again whether ownership is even. They also check by themselves after every
        change."""
        return _cluster(
            await self._connections.call(CLUSTER, "Rebalance", pb.RebalanceRequest(), pb.ClusterStatus)
        )


def _cluster(found: pb.ClusterStatus) -> Cluster:
    return Cluster(
        found.cluster_id,
        found.topology,
        [
            ClusterBroker(
                *(each.node_id, dict(each.listeners), each.machine, each.draining),
                *(each.partitions, each.coordinator_shards, each.lease_ms),
            )
            for each in found.brokers
        ],
        found.partitions,
        found.unowned,
    )
