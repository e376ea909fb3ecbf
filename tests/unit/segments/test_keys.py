"""Object keys: made and parsed in one place, in order, without names."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.ids import Session, TopicId, new_session, new_topic_id
from millpond.objects.store import check_key, check_prefix
from millpond.segments.keys import (
    JournalKey,
    ObjectKey,
    PayloadKey,
    SegmentKey,
    journal_key,
    parse,
    payload_key,
    segment_key,
    session_of,
    session_prefixes,
)

sessions = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True).map(Session)
topic_ids = st.binary(min_size=16, max_size=16).map(TopicId)
offsets = st.integers(0, 2**63 - 1)
partitions = st.integers(0, 2**31 - 1)
keys = st.one_of(
    st.builds(JournalKey, sessions, st.integers(0, 10**16 - 1)),
    st.builds(SegmentKey, sessions, topic_ids, partitions, offsets, offsets, st.integers(0, 10**9)),
    st.builds(PayloadKey, topic_ids, st.uuids()),
)

TOPIC = TopicId(bytes(range(16)))
IDENTIFIER = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


@given(keys)
def test_round_trip(key: ObjectKey) -> None:
    assert parse(str(key)) == key


@given(keys)
def test_every_key_is_one_a_store_takes(key: ObjectKey) -> None:
    check_key(str(key))


def test_examples() -> None:
    session = Session("0011223344556677")
    topic = TOPIC.hex()
    assert journal_key(session, 42) == "journal/0011223344556677/0000000000000042"
    segment = f"segments/0011223344556677/{topic}/3/00000000000000000100-00000000000000000250"
    assert segment_key(session, TOPIC, 3, 100, 250) == segment
    assert segment_key(session, TOPIC, 3, 100, 250, attempt=2) == segment + "-2"
    assert payload_key(TOPIC, IDENTIFIER) == f"payloads/{topic}/{IDENTIFIER}"


@given(st.integers(0, 10**16 - 1), st.integers(0, 10**16 - 1))
def test_journals_sort_by_sequence(one: int, other: int) -> None:
    session = Session("s")
    assert (journal_key(session, one) < journal_key(session, other)) == (one < other)


@given(offsets, offsets)
def test_segments_sort_by_offset(one: int, other: int) -> None:
    first, second = (segment_key(Session("s"), TOPIC, 0, base, base) for base in (one, other))
    assert (first < second) == (one < other)


def test_session_and_its_prefixes() -> None:
    session = new_session()
    own = [journal_key(session, 1), segment_key(session, new_topic_id(), 0, 0, 1)]
    for key in own:
        assert session_of(key) == session
        assert any(key.startswith(prefix) for prefix in session_prefixes(session))
    assert session_of(payload_key(TOPIC, IDENTIFIER)) is None
    other = journal_key(Session(session + "0"), 1)
    assert not any(other.startswith(prefix) for prefix in session_prefixes(session))
    for prefix in session_prefixes(session):
        check_prefix(prefix)


def test_a_payload_knows_its_age() -> None:
    assert PayloadKey(TOPIC, IDENTIFIER).created_ms == 0x01890A5DAC96


@pytest.mark.parametrize(
    "key",
    [
        "",
        "journal/s/1",
        "journal/s/0000000000000001/x",
        "journal/s/00000000000000001",
        "journal//0000000000000001",
        "journal/a.b/0000000000000001",
        "journal/s/0000000000000001\n",
        "journal/s/" + "\N{ARABIC-INDIC DIGIT ONE}" * 16,
        f"segments/s/{TOPIC.hex()}/0/1-2",
        f"segments/s/{TOPIC.hex().upper()}/0/{0:020d}-{1:020d}",
        f"segments/s/{TOPIC.hex()}/0/{0:020d}-{1:020d}-0",
        f"segments/s/orders/0/{0:020d}-{1:020d}",
        f"payloads/{TOPIC.hex()}/x",
        "elsewhere/s/0000000000000001",
    ],
)
def test_foreign_keys_are_not_guessed_at(key: str) -> None:
    assert parse(key) is None
    assert session_of(key) is None
