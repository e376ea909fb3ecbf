"""The brokers of the cluster and what each of them owns."""

from typing import Literal

from millpond.frontends.web.operations import NO_BODY, HttpCall, NoParameters, operation
from millpond.frontends.web.rights import DESCRIBE_CLUSTER
from millpond.frontends.web.schemas import ClusterBrokerJson, ClusterJson
from millpond.security.requirements import needs
from millpond.service import BrokerStatus


@operation(
    "GET",
    "/cluster",
    rights=needs(DESCRIBE_CLUSTER),
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: ClusterJson},
)
async def show_cluster(call: HttpCall[NoParameters, NoParameters, None]) -> ClusterJson:
    """Show the brokers, their addresses, and how much each of them owns. Every broker reports all of them."""
    found = await call.site.services.cluster.status()
    return ClusterJson(
        found.version, found.partitions, found.unowned, [_broker(each) for each in found.brokers]
    )


def _broker(each: BrokerStatus) -> ClusterBrokerJson:
    return ClusterBrokerJson(
        node_id=each.node_id,
        state=_state(each),
        partitions=each.partitions,
        coordinator_shards=each.shards,
        lease_ms=each.lease_ms,
        listeners=dict(each.addresses),
        machine=each.machine,
    )


def _state(each: BrokerStatus) -> Literal["serving", "draining", "drained", "silent"]:
    if each.lease_ms < 0:
        return "silent"
    if not each.is_draining:
        return "serving"
    return "draining" if each.partitions or each.shards else "drained"
