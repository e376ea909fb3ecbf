"""A generation as it is stored: everything its members need to continue with another coordinator.

JSON, so that operators can read it. Metadata and assignments of members are opaque bytes, stored as base64.
"""

import base64
import json
from dataclasses import dataclass
from typing import Any

from millpond.groups.classic.members import GroupMember, Protocol


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stable generation if it has members, otherwise an empty group."""

    generation: int
    protocol_type: str
    protocol: str | None = None
    leader: str | None = None
    members: tuple[GroupMember, ...] = ()


def encode_members(snapshot: Snapshot) -> str:
    """The part of a snapshot that has no column."""
    return json.dumps(
        {
            "protocol": snapshot.protocol,
            "leader": snapshot.leader,
            "members": [_encode_member(member) for member in snapshot.members],
        },
        separators=(",", ":"),
    )


def decode_members(generation: int, protocol_type: str, text: str) -> Snapshot:
    kept = json.loads(text)
    members = tuple(_decode_member(each) for each in kept["members"])
    return Snapshot(generation, protocol_type, kept["protocol"], kept["leader"], members)


def _encode_member(member: GroupMember) -> dict[str, Any]:
    return {
        "id": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "session_ms": member.session_timeout_ms,
        "rebalance_ms": member.rebalance_timeout_ms,
        "protocols": [[each.name, _encode(each.metadata)] for each in member.protocols],
        "assignment": _encode(member.assignment),
    }


def _decode_member(kept: dict[str, Any]) -> GroupMember:
    return GroupMember(
        member_id=kept["id"],
        client_id=kept["client"],
        client_host=kept["host"],
        session_timeout_ms=kept["session_ms"],
        rebalance_timeout_ms=kept["rebalance_ms"],
        protocols=tuple(Protocol(name, base64.b64decode(metadata)) for name, metadata in kept["protocols"]),
        instance_id=kept["instance"],
        assignment=base64.b64decode(kept["assignment"]),
    )


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
