"""FindCoordinator (10), v0-6: returns the broker that coordinates a group (type 0) or a transactional id (type 1).

The client needs DESCRIBE on the group or the transactional id. A request has one key up to v3, several from v4. Share
groups (type 2) are not supported.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID
from millpond.model.errors import NotAuthorized
from millpond.protocol import ErrorCode
from millpond.protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

BATCHED_SINCE = 4
RIGHTS = {0: DESCRIBE_GROUP, 1: DESCRIBE_TRANSACTIONAL_ID}
"""What a client needs, by the type of its key."""
NO_NODE = -1


@handles(FindCoordinatorRequest, rights=(DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID))
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
    if key_type not in RIGHTS:
        text = f"there are no coordinators of type {key_type} here"
        return _no_coordinator(key, ErrorCode.INVALID_REQUEST, text)
    try:
        call.require(RIGHTS[key_type], key)
    except NotAuthorized as error:
        return _no_coordinator(key, code_of(error), str(error))
    found = call.services.owners.coordinator(key)
    node = next((each for each in call.nodes() if found is not None and each.id == found.node_id), None)
    if node is None:
        text = "its coordinator has gone, and the next one is not there yet"
        return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, text)
    return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_message="")


def _no_coordinator(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=text)
