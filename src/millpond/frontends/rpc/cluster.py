"""The gRPC service `Cluster`: reports what each broker owns and triggers handovers."""

from millpond.frontends.rpc.context import Context
from millpond.frontends.rpc.guarding import guarded
from millpond.frontends.rpc.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER
from millpond.model.acls import AclOperation, ResourceType
from millpond.security.requirements import Needs
from millpond.service import BrokerStatus, ClusterAdministration, ClusterStatus
from millpond.stubs import cluster_pb2 as pb


class ClusterService:
    def __init__(self, cluster: ClusterAdministration, cluster_id: str) -> None:
        self._cluster = cluster
        self._cluster_id = cluster_id

    @guarded(Needs(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER))
    async def look(self, _: pb.LookRequest, __: Context) -> pb.LookResponse:
        await self._cluster.refresh()
        return pb.LookResponse()

    @guarded(DESCRIBE_CLUSTER)
    async def status(self, _: pb.ClusterStatusRequest, __: Context) -> pb.ClusterStatus:
        return self._encoded(await self._cluster.status())

    @guarded(ALTER_CLUSTER)
    async def drain(self, request: pb.DrainRequest, context: Context) -> pb.ClusterStatus:
        return self._encoded(
            await self._cluster.drain(request.node_id, undo=request.undo, access=context.access)
        )

    @guarded(ALTER_CLUSTER)
    async def rebalance(self, _: pb.RebalanceRequest, context: Context) -> pb.ClusterStatus:
        return self._encoded(await self._cluster.rebalance(access=context.access))

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
