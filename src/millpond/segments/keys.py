"""The only module that builds and parses object keys.

A key contains ids, never a topic's name. Except for payloads it also contains the session that wrote it, so
that the orphan collector can identify the writer. Numbers are zero-padded, so keys sort in the order of their
numbers.
"""

import re
from dataclasses import dataclass
from uuid import UUID

from millpond.model.ids import Session, TopicId

JOURNALS = "journal/"
SEGMENTS = "segments/"
PAYLOADS = "payloads/"

_SESSION = r"(?P<session>[A-Za-z0-9_-]{1,64})"
_TOPIC = r"(?P<topic>[0-9a-f]{32})"
_JOURNAL = re.compile(rf"journal/{_SESSION}/(?P<sequence>[0-9]{{16}})")
_SEGMENT = re.compile(
    rf"segments/{_SESSION}/{_TOPIC}/(?P<partition>[0-9]{{1,10}})"
    r"/(?P<base>[0-9]{20})-(?P<end>[0-9]{20})(?:-(?P<attempt>[1-9][0-9]{0,9}))?"
)
_PAYLOAD = re.compile(
    rf"payloads/{_TOPIC}/(?P<identifier>[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})"
)


@dataclass(frozen=True, slots=True)
class JournalKey:
    """`journal/<session>/<sequence>`"""

    session: Session
    sequence: int

    def __str__(self) -> str:
        return journal_key(self.session, self.sequence)


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """`segments/<session>/<topic id>/<partition>/<base>-<end>`

    `attempt` (appended as `-<attempt>` if it is not 0) distinguishes one session's segments for one range:
    a merge that is retried after its commit lost a race, or a range that is compacted a second time.
    """

    session: Session
    topic_id: TopicId
    partition: int
    base_offset: int
    end_offset: int
    attempt: int = 0

    def __str__(self) -> str:
        suffix = f"-{self.attempt}" if self.attempt else ""
        folder = f"{SEGMENTS}{self.session}/{self.topic_id.hex()}/{self.partition}"
        return f"{folder}/{self.base_offset:020d}-{self.end_offset:020d}{suffix}"


@dataclass(frozen=True, slots=True)
class PayloadKey:
    """`payloads/<topic id>/<uuid7>`"""

    topic_id: TopicId
    identifier: UUID

    def __str__(self) -> str:
        return f"{PAYLOADS}{self.topic_id.hex()}/{self.identifier}"

    @property
    def created_ms(self) -> int:
        """When the uuid7 was created, by its creator's clock: the first 48 bits (RFC 9562, 5.7)."""
        return self.identifier.int >> 80


ObjectKey = JournalKey | SegmentKey | PayloadKey


def journal_key(session: Session, sequence: int) -> str:
    return f"{JOURNALS}{session}/{sequence:016d}"


def segment_key(
    session: Session, topic_id: TopicId, partition: int, base_offset: int, end_offset: int, attempt: int = 0
) -> str:
    return str(SegmentKey(session, topic_id, partition, base_offset, end_offset, attempt))


def payload_key(topic_id: TopicId, identifier: UUID) -> str:
    return str(PayloadKey(topic_id, identifier))


def payload_prefix(topic_id: TopicId) -> str:
    """The prefix of all payloads of a topic, which sort by the time at which their ids were created."""
    return f"{PAYLOADS}{topic_id.hex()}/"


def parse(key: str) -> ObjectKey | None:
    """The parts of a key, or None if this module did not build it: foreign keys are left alone."""
    for pattern, make in ((_JOURNAL, _journal), (_SEGMENT, _segment), (_PAYLOAD, _payload)):
        if match := pattern.fullmatch(key):
            return make(match)
    return None


def session_of(key: str) -> Session | None:
    """The session that wrote the object; None for payloads, which any client may upload, and for foreign keys."""
    parsed = parse(key)
    return None if parsed is None or isinstance(parsed, PayloadKey) else parsed.session


def session_prefixes(session: Session) -> tuple[str, ...]:
    """The prefixes of everything a session may have written: the orphan collector lists them."""
    return (f"{JOURNALS}{session}/", f"{SEGMENTS}{session}/")


def _journal(match: re.Match[str]) -> ObjectKey:
    return JournalKey(Session(match["session"]), int(match["sequence"]))


def _segment(match: re.Match[str]) -> ObjectKey:
    return SegmentKey(
        Session(match["session"]),
        _topic_id(match),
        int(match["partition"]),
        int(match["base"]),
        int(match["end"]),
        int(match["attempt"] or 0),
    )


def _payload(match: re.Match[str]) -> ObjectKey:
    return PayloadKey(_topic_id(match), UUID(match["identifier"]))


def _topic_id(match: re.Match[str]) -> TopicId:
    return TopicId(bytes.fromhex(match["topic"]))
