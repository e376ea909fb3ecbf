"""Which heartbeats of a share group are valid, whatever the state of the group."""

from collections.abc import Iterator
from typing import Final

from millpond.groups.consumer.checks import TOPIC_NAME_CHARS_MAX
from millpond.groups.consumer.messages import JOIN_EPOCH, LEAVE_EPOCH
from millpond.groups.limits import GroupLimits
from millpond.groups.share.messages import ShareHeartbeat
from millpond.model.errors import InvalidRequest
from millpond.model.group_ids import is_storable_member_id

MEMBER_ID_CHARS_MAX: Final = 36
"""The length of the text of a UUID, which clients use."""


def check_heartbeat(request: ShareHeartbeat, limits: GroupLimits) -> None:
    for reason in _reasons(request, limits):
        raise InvalidRequest(reason=reason)


def _reasons(request: ShareHeartbeat, limits: GroupLimits) -> Iterator[str]:
    if not 0 < len(request.member_id) <= MEMBER_ID_CHARS_MAX:
        yield f"the member id does not have 1 to {MEMBER_ID_CHARS_MAX} characters"
    if not is_storable_member_id(request.member_id):
        yield "the member id has a control character"
    if request.member_epoch < LEAVE_EPOCH:
        yield f"{request.member_epoch} is no epoch of a member"
    if request.rack_id == "":
        yield "the rack id is empty"
    if request.member_epoch == JOIN_EPOCH and not request.topic_names:
        yield "a member joins without topic names"
    yield from _too_large(request, limits)


def _too_large(request: ShareHeartbeat, limits: GroupLimits) -> Iterator[str]:
    names = request.topic_names or ()
    texts = (request.rack_id, request.client_id, request.client_host)
    if any(text is not None and len(text) > limits.member_text_chars_max for text in texts):
        yield f"an id is longer than {limits.member_text_chars_max} characters"
    if len(names) > limits.topic_names_max:
        yield f"{len(names)} topic names are more than {limits.topic_names_max}"
    if any(len(name) > TOPIC_NAME_CHARS_MAX for name in names):
        yield f"a topic name is longer than {TOPIC_NAME_CHARS_MAX} characters"
