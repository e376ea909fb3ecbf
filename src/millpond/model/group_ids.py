"""Which ids of groups and of their members can be stored. PostgreSQL stores no NUL, and an entry of an index has up to
2,704 bytes there: a group id and a member id together have to fit."""

import uuid
from typing import Final

from millpond.model.errors import InvalidGroupId

GROUP_ID_BYTES_MAX: Final = 1_000
MEMBER_ID_BYTES_MAX: Final = 1_000
MEMBER_NAME_BYTES_MAX: Final = 500
"""Of the name with which a member id begins that a coordinator makes."""


def check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId(group=group_id)
    check_storable_group_id(group_id)


def check_storable_group_id(group_id: str) -> None:
    """As `check_group_id`, but an id may be empty: old clients commit offsets of such a group."""
    if not _is_storable(group_id, GROUP_ID_BYTES_MAX):
        reason = f"has more than {GROUP_ID_BYTES_MAX} bytes or a control character"
        raise InvalidGroupId(f"Group id {group_id[:100]!r} {reason}.", group=group_id[:100])


def is_storable_member_id(member_id: str) -> bool:
    return _is_storable(member_id, MEMBER_ID_BYTES_MAX)


def new_member_id(name: str) -> str:
    """A new id that begins with the name of a client or an instance, as far as it can be stored."""
    kept = "".join(filter(_is_no_control, name)).encode(errors="ignore")[:MEMBER_NAME_BYTES_MAX]
    return f"{kept.decode(errors='ignore')}-{uuid.uuid4()}"


def _is_storable(text: str, bytes_max: int) -> bool:
    return len(text.encode(errors="replace")) <= bytes_max and all(map(_is_no_control, text))


def _is_no_control(character: str) -> bool:
    return character >= " "
