"""How a share group is stored: one JSON text for the group, and one for each member with its target.

Fields without a value are left out. Operators can read it: topics by id, partitions as ranges ("0-3,7").
"""

import json
from dataclasses import dataclass

from millpond.groups.share.members import ShareMember
from millpond.groups.stored_partitions import decode_partitions, encode_partitions, text_of_fields
from millpond.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class ShareGroupHeader:
    """What is stored of a group besides its epoch and its members. `topics` is the fingerprint of the subscribed
    topics."""

    target_epoch: int
    session_timeout_ms: int
    topics: str


def encode_header(header: ShareGroupHeader) -> str:
    fields = {
        "target_epoch": header.target_epoch,
        "session_ms": header.session_timeout_ms,
        "topics": header.topics,
    }
    return text_of_fields(fields)


def decode_header(text: str) -> ShareGroupHeader:
    kept = json.loads(text)
    return ShareGroupHeader(kept["target_epoch"], kept["session_ms"], kept.get("topics", ""))


def encode_member(member: ShareMember, target: frozenset[TopicPartition]) -> str:
    fields = {
        "client": member.client_id,
        "host": member.client_host,
        "rack": member.rack_id,
        "topics": member.topic_names,
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
        "assigned": encode_partitions(member.assigned),
        "target": encode_partitions(target),
    }
    return text_of_fields(fields)


def decode_member(member_id: str, text: str) -> tuple[ShareMember, frozenset[TopicPartition]]:
    kept = json.loads(text)
    member = ShareMember(
        member_id=member_id,
        client_id=kept.get("client", ""),
        client_host=kept.get("host", ""),
        rack_id=kept.get("rack"),
        topic_names=tuple(kept.get("topics", ())),
        epoch=kept["epoch"],
        previous_epoch=kept["previous_epoch"],
        assigned=frozenset(decode_partitions(kept.get("assigned", {}))),
    )
    return member, frozenset(decode_partitions(kept.get("target", {})))
