"""How a consumer group is stored: one JSON text for the group, one for each member with its target, and one for each
regular expression, beside those of members, so that each is written only when it changes.

Operators can read it: topics by id, partitions as ranges ("0-3,7"), those that a member has by the epoch since which it
has them. Fields without a value are left out. Metadata of classic members are opaque bytes, stored as base64.
"""

import base64
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from millpond.groups.classic.members import Protocol
from millpond.groups.consumer.members import ClassicSupport, ConsumerMember, MemberState
from millpond.groups.stored_partitions import decode_partitions, encode_partitions, text_of_fields
from millpond.model.ids import TopicPartition

REGEX_ROW: Final = "\x01"
"""A control character, which no id of a member has."""
Partitions = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupHeader:
    """What is stored of a group besides its epoch and its members. `topics` is the fingerprint of the subscribed
    topics."""

    target_epoch: int
    assignor: str
    session_timeout_ms: int
    topics: str


def encode_header(header: GroupHeader) -> str:
    fields = {
        "target_epoch": header.target_epoch,
        "assignor": header.assignor,
        "session_ms": header.session_timeout_ms,
        "topics": header.topics,
    }
    return text_of_fields(fields)


def decode_header(text: str) -> GroupHeader:
    kept = json.loads(text)
    return GroupHeader(kept["target_epoch"], kept["assignor"], kept["session_ms"], kept.get("topics", ""))


def regex_row(regex: str) -> str:
    """The id of the row that has what a regular expression matches. No member has such an id."""
    return f"{REGEX_ROW}{blake2b(regex.encode(), digest_size=16).hexdigest()}"


def is_regex_row(row_id: str) -> bool:
    return row_id.startswith(REGEX_ROW)


def encode_matches(regex: str, topics: frozenset[str]) -> str:
    return text_of_fields({"regex": regex, "matches": sorted(topics)})


def decode_matches(text: str) -> tuple[str, frozenset[str]]:
    kept = json.loads(text)
    return kept["regex"], frozenset(kept.get("matches", ()))


def encode_member(member: ConsumerMember, target: Partitions) -> str:
    fields = {
        "client": member.client_id,
        "host": member.client_host,
        "instance": member.instance_id,
        "rack": member.rack_id,
        "rebalance_ms": member.rebalance_timeout_ms,
        "topics": member.topic_names,
        "regex": member.topic_regex,
        "assignor": member.assignor,
        "epoch": member.epoch,
        "previous_epoch": member.previous_epoch,
        "state": member.state.value,
        "assigned": _encode_since(member.assigned),
        "pending": _encode_since(member.pending),
        "target": encode_partitions(target),
        "classic": _encode_classic(member.classic),
    }
    return text_of_fields(fields)


def decode_member(member_id: str, text: str) -> tuple[ConsumerMember, Partitions]:
    kept = json.loads(text)
    member = ConsumerMember(
        member_id=member_id,
        client_id=kept.get("client", ""),
        client_host=kept.get("host", ""),
        instance_id=kept.get("instance"),
        rack_id=kept.get("rack"),
        rebalance_timeout_ms=kept["rebalance_ms"],
        topic_names=tuple(kept.get("topics", ())),
        topic_regex=kept.get("regex", ""),
        assignor=kept.get("assignor"),
        epoch=kept["epoch"],
        previous_epoch=kept["previous_epoch"],
        state=MemberState(kept["state"]),
        assigned=_decode_since(kept.get("assigned", {})),
        pending=_decode_since(kept.get("pending", {})),
        classic=_decode_classic(kept.get("classic")),
    )
    return member, frozenset(decode_partitions(kept.get("target", {})))


def _encode_since(partitions: Mapping[TopicPartition, int]) -> dict[str, dict[str, str]]:
    by_epoch: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for each, since in partitions.items():
        by_epoch[since].append(each)
    encoded: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for since in sorted(by_epoch):
        for topic, ranges in encode_partitions(by_epoch[since]).items():
            encoded[topic][str(since)] = ranges
    return dict(encoded)


def _decode_since(encoded: Mapping[str, Mapping[str, str]]) -> dict[TopicPartition, int]:
    return {
        each: int(since)
        for topic, by_epoch in encoded.items()
        for since, ranges in by_epoch.items()
        for each in decode_partitions({topic: ranges})
    }


def _encode_classic(classic: ClassicSupport | None) -> dict[str, Any] | None:
    if classic is None:
        return None
    protocols = [[each.name, base64.b64encode(each.metadata).decode()] for each in classic.protocols]
    return {"session_ms": classic.session_timeout_ms, "protocols": protocols}


def _decode_classic(kept: Mapping[str, Any] | None) -> ClassicSupport | None:
    if kept is None:
        return None
    protocols = tuple(Protocol(name, base64.b64decode(metadata)) for name, metadata in kept["protocols"])
    return ClassicSupport(kept["session_ms"], protocols)
