"""Which heartbeats are valid, whatever the state of the group."""

from collections.abc import Iterator

from millpond.groups.consumer.assignors import ASSIGNORS
from millpond.groups.consumer.messages import JOIN_EPOCH, PAUSE_EPOCH, ConsumerHeartbeat
from millpond.groups.limits import GroupLimits
from millpond.model.errors import InvalidRequest, UnsupportedAssignor
from millpond.model.group_ids import MEMBER_ID_BYTES_MAX, is_storable_member_id

TOPIC_NAME_CHARS_MAX = 249


def check_heartbeat(group_id: str, request: ConsumerHeartbeat, limits: GroupLimits) -> None:
    for reason in _reasons(request, limits):
        raise InvalidRequest(reason=reason)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        supported = ", ".join(ASSIGNORS)
        raise UnsupportedAssignor(group=group_id, assignor=request.assignor, supported=supported)


def _reasons(request: ConsumerHeartbeat, limits: GroupLimits) -> Iterator[str]:
    if request.member_epoch < PAUSE_EPOCH:
        yield f"{request.member_epoch} is no epoch of a member"
    if request.instance_id == "" or request.rack_id == "":
        yield "an instance id or rack id is empty"
    if request.member_epoch == JOIN_EPOCH:
        yield from _reasons_against_join(request)
    elif not request.member_id:
        yield "the member id is empty"
    if not is_storable_member_id(request.member_id):
        yield f"the member id has more than {MEMBER_ID_BYTES_MAX} bytes or a control character"
    yield from _too_large(request, limits)


def _reasons_against_join(request: ConsumerHeartbeat) -> Iterator[str]:
    if request.rebalance_timeout_ms < 0:
        yield "a member joins without a rebalance timeout"
    if request.topic_names is None and request.topic_regex is None:
        yield "a member joins without a subscription"
    if request.owned is None or request.owned:
        yield "a member joins and does not report that it owns no partitions"


def _too_large(request: ConsumerHeartbeat, limits: GroupLimits) -> Iterator[str]:
    names, owned = request.topic_names or (), request.owned or ()
    texts = (request.member_id, request.instance_id, request.rack_id, request.client_id, request.client_host)
    if any(text is not None and len(text) > limits.member_text_chars_max for text in texts):
        yield f"an id is longer than {limits.member_text_chars_max} characters"
    if len(names) > limits.topic_names_max:
        yield f"{len(names)} topic names are more than {limits.topic_names_max}"
    if any(len(name) > TOPIC_NAME_CHARS_MAX for name in names):
        yield f"a topic name is longer than {TOPIC_NAME_CHARS_MAX} characters"
    if len(owned) > limits.owned_partitions_max:
        yield f"{len(owned)} owned partitions are more than {limits.owned_partitions_max}"
