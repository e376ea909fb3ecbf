"""The gRPC service `Cluster`: reports what each broker owns and triggers handovers."""

from millpond.frontends.rpc.memory import Context
from millpond.service import BrokerStatus, ClusterAdministration, ClusterStatus
from millpond.stubs import cluster_pb2 as pb


class ClusterService:
    def __init__(self, cluster: ClusterAdministration, cluster_id: str) -> None:
        self._cluster = cluster
        self._cluster_id = cluster_id

    async def look(self, _: pb.LookRequest, __: Context) -> pb.LookResponse:
        await self._cluster.refresh()
        return pb.LookResponse()

    async def status(self, _: pb.ClusterStatusRequest, __: Context) -> pb.ClusterStatus:
        return self._encoded(await self._cluster.status())

    async def drain(self, request: pb.DrainRequest, _: Context) -> pb.ClusterStatus:
        return self._encoded(await self._cluster.drain(request.node_id, undo=request.undo))

    async def rebalance(self, _: pb.RebalanceRequest, __: Context) -> pb.ClusterStatus:
        return self._encoded(await self._cluster.rebalance())

    def _encoded(self, found: ClusterStatus) -> pb.ClusterStatus:
        return pb.ClusterStatus(
            cluster_id=self._cluster_id,
            topology=found.version,
            brokers=[_broker(each) for each in found.brokers],
            unowned=found.unowned,
            partitions=found.partitions,
        )


def _broker(each: BrokerStatus) -> pb.Broker:
    return pb.Broker(
        node_id=each.node_id,
        session=each.session,
        listeners=each.addresses,
        machine=each.machine,
        draining=each.is_draining,
        partitions=each.partitions,
        coordinator_shards=each.shards,
        lease_ms=each.lease_ms,
        answering=each.is_answering,
    )
