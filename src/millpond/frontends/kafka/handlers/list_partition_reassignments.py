"""ListPartitionReassignments (46), v0: returns no partitions, because no reassignment is ever in progress.

Kafka, too, lists only what is in progress, whatever the client names. A handover between brokers is not a reassignment:
the owner is the only replica, before and after.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_and_message
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_CLUSTER
from millpond.model.errors import NotAuthorized
from millpond.protocol.messages.reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest, rights=(DESCRIBE_CLUSTER,))
async def list_partition_reassignments(
    call: KafkaCall, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        call.require(DESCRIBE_CLUSTER)
    except NotAuthorized as error:
        code, message = code_and_message(error)
        return ListPartitionReassignmentsResponse(error_code=code, error_message=message, topics=[])
    return ListPartitionReassignmentsResponse(topics=[])
