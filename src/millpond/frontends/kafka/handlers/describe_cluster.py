"""DescribeCluster (60), v0-2: lists the brokers and the controller, which is the broker that received the request.

From v1 a client may ask for controllers (endpoint type 2) instead of brokers; there are none apart from
brokers. Fenced brokers (v2) do not exist.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.protocol import ErrorCode
from millpond.protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from millpond.protocol.messages.metadata import OPERATIONS_UNKNOWN

BROKERS = 1
CONTROLLERS = 2


@handles(
    DescribeClusterRequest, rights=(), needs_none_because="every client needs the addresses of the brokers"
)
async def describe_cluster(call: KafkaCall, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return _wrong_endpoint(request.endpoint_type)
    node = call.services.node
    asked = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=call.services.cluster_id,
        controller_id=node.id,
        brokers=[
            DescribeClusterBroker(broker_id=each.id, host=each.host, port=each.port) for each in call.nodes()
        ],
        cluster_authorized_operations=call.cluster_operations() if asked else OPERATIONS_UNKNOWN,
    )


def _wrong_endpoint(endpoint_type: int) -> DescribeClusterResponse:
    known = endpoint_type == CONTROLLERS
    code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
    message = f"This is an endpoint of brokers (type {BROKERS}), not of type {endpoint_type}."
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
