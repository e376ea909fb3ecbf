"""FindCoordinator (10), v0-6: returns the broker that coordinates a group (type 0) or a transactional id (type 1).

A request has one key up to v3, several from v4. Share groups (type 2) are not supported.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.protocol import ErrorCode
from millpond.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCHED_SINCE = 4
KEY_TYPES = (0, 1)
NO_NODE = -1


@handles(FindCoordinatorRequest)
async def find_coordinator(call: KafkaCall, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if call.version >= BATCHED_SINCE:
        found = [_coordinator(call, key, request.key_type) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = _coordinator(call, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(call: KafkaCall, key: str, key_type: int) -> Coordinator:
    if key_type not in KEY_TYPES:
        code, text = ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type} here"
        return Coordinator(
            key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=text
        )
    found = call.services.owners.coordinator(key)
    node = next((each for each in call.nodes() if found is not None and each.id == found.node_id), None)
    if node is None:
        code, text = (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "its coordinator has gone, and the next one is not there yet",
        )
        return Coordinator(
            key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=text
        )
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_message="")
