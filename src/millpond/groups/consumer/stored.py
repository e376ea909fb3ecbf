"""How a consumer group is stored: one JSON text for the group, one for each member with its target, and one for each
regular expression, beside those of members, so that each is written only when it changes.

Operators can read it: topics by id, partitions as ranges ("0-3,7"), those that a member has by the epoch since which it
has them. Fields without a value are left out. Metadata of classic members are opaque bytes, stored as base64.
"""

import base64
import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from millpond.groups.classic.members import Protocol
from millpond.groups.consumer.members import ClassicSupport, ConsumerMember, MemberState
from millpond.model.ids import TopicId, TopicPartition

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
    return _text(fields)


def decode_header(text: str) -> GroupHeader:
    kept = json.loads(text)
    return GroupHeader(kept["target_epoch"], kept["assignor"], kept["session_ms"], kept.get("topics", ""))


def regex_row(regex: str) -> str:
    """The id of the row that has what a regular expression matches. No member has such an id."""
    return f"{REGEX_ROW}{blake2b(regex.encode(), digest_size=16).hexdigest()}"


def is_regex_row(row_id: str) -> bool:
    return row_id.startswith(REGEX_ROW)


def encode_matches(regex: str, topics: frozenset[str]) -> str:
    return _text({"regex": regex, "matches": sorted(topics)})


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
        "target": _encode_partitions(target),
        "classic": _encode_classic(member.classic),
    }
    return _text(fields)


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
    return member, frozenset(_decode_partitions(kept.get("target", {})))


def _text(fields: Mapping[str, Any]) -> str:
    given = {name: value for name, value in fields.items() if value not in (None, "", (), {})}
    return json.dumps(given, separators=(",", ":"), ensure_ascii=False)


def _encode_since(partitions: Mapping[TopicPartition, int]) -> dict[str, dict[str, str]]:
    by_epoch: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for each, since in partitions.items():
        by_epoch[since].append(each)
    encoded: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for since in sorted(by_epoch):
        for topic, ranges in _encode_partitions(by_epoch[since]).items():
            encoded[topic][str(since)] = ranges
    return dict(encoded)


def _decode_since(encoded: Mapping[str, Mapping[str, str]]) -> dict[TopicPartition, int]:
    return {
        each: int(since)
        for topic, by_epoch in encoded.items()
        for since, ranges in by_epoch.items()
        for each in _decode_partitions({topic: ranges})
    }


def _encode_partitions(partitions: Iterable[TopicPartition]) -> dict[str, str]:
    by_topic: defaultdict[TopicId, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        by_topic[topic_id].append(partition)
    return {_text_of_id(topic_id): _ranges(numbers) for topic_id, numbers in by_topic.items()}


def _text_of_id(topic_id: TopicId) -> str:
    """As `uuid.UUID` writes it, in a fifth of the time."""
    text = topic_id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _decode_partitions(encoded: Mapping[str, str]) -> Iterator[TopicPartition]:
    for topic, ranges in encoded.items():
        topic_id = TopicId(uuid.UUID(topic).bytes)
        for each in ranges.split(","):
            first, _, last = each.partition("-")
            for partition in range(int(first), int(last or first) + 1):
                yield TopicPartition(topic_id, partition)


def _ranges(numbers: list[int]) -> str:
    """Of ascending numbers."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


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
