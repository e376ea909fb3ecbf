"""Ids of payloads and the header that refers to one."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.model.configs import check_change, check_configs, completed
from millpond.model.errors import InvalidConfig, InvalidPayload
from millpond.model.payloads import (
    AHEAD_MS_MAX,
    HEADER,
    PAYLOAD_BYTES_MAX,
    Reference,
    check_age,
    created_at_ms,
    new_payload_id,
    parse_payload_id,
    parse_reference,
    referred_to,
)
from millpond.segments.keys import PayloadKey

NOW_MS = 1_700_000_000_000
OTHER_KIND = "8c30f373-10a5-4591-ab51-e337992d8c9c"
ID = "018bcfe5-6800-7123-8abc-0123456789ab"


@given(st.integers(0, 2**48 - 1), st.binary(min_size=10, max_size=10))
def test_an_id_is_a_uuid7_of_its_time(now_ms, random):
    made = new_payload_id(now_ms, lambda count: random[:count])
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert created_at_ms(made) == now_ms == PayloadKey(b"t" * 16, made).created_ms
    assert parse_payload_id(str(made)) == made


def test_every_random_bit_counts():
    ids = {new_payload_id(NOW_MS, lambda _, bit=bit: (1 << bit).to_bytes(10)) for bit in range(74)}
    assert len(ids) == 74


def test_ids_of_one_moment_differ_and_later_ones_sort_behind():
    assert new_payload_id(NOW_MS) != new_payload_id(NOW_MS)
    assert str(new_payload_id(NOW_MS)) < str(new_payload_id(NOW_MS + 1))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        ID.upper(),
        f"{{{ID}}}",
        ID.replace("-", ""),
        f"{ID} ",
        OTHER_KIND,
        f"urn:uuid:{ID}",
        ID[:-1],
    ],
)
def test_what_is_no_id_in_its_one_form_is_refused(text):
    with pytest.raises(InvalidPayload):
        parse_payload_id(text)


@given(st.integers(1, PAYLOAD_BYTES_MAX), st.integers(0, 2**32 - 1))
def test_a_reference_says_what_it_was_told(size, checksum):
    reference = Reference(uuid.UUID(ID), size, checksum)
    assert parse_reference(str(reference).encode()) == reference


def test_a_reference_looks_as_documented():
    assert str(Reference(uuid.UUID(ID), 5, 0xAB)) == f"{ID};bytes=5;crc32c=000000ab"


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        ID.encode(),
        f"{ID};bytes=0;crc32c=000000ab".encode(),
        f"{ID};bytes=05;crc32c=000000ab".encode(),
        f"{ID};bytes=-5;crc32c=000000ab".encode(),
        f"{ID};bytes=5;crc32c=ab".encode(),
        f"{ID};bytes=5;crc32c=000000AB".encode(),
        f"{ID};bytes=5;crc32c=000000ab;".encode(),
        f"{ID};bytes={PAYLOAD_BYTES_MAX + 1};crc32c=000000ab".encode(),
        f"{OTHER_KIND};bytes=5;crc32c=000000ab".encode(),
        b"\xff\xfe" * 40,
    ],
)
def test_what_is_no_reference_is_refused(value):
    with pytest.raises(InvalidPayload):
        parse_reference(value)


def test_a_refusal_shows_no_more_than_it_must():
    with pytest.raises(InvalidPayload) as caught:
        parse_reference(b"x" * 100_000)
    assert len(str(caught.value)) < 300


def test_what_a_stored_message_refers_to_is_read_kindly():
    """Whoever decides what to delete must not be strict about it."""
    other = str(new_payload_id(NOW_MS))
    headers = [(HEADER, ID.upper().encode()), ("x", other.encode()), (HEADER, f"{other};odd".encode())]
    assert referred_to(headers) == {uuid.UUID(ID), uuid.UUID(other)}
    assert referred_to([(HEADER, b"junk"), (HEADER, None), (HEADER, b"\xff" * 36)]) == set()


@pytest.mark.parametrize(
    ("age_ms", "allowed"), [(0, True), (1000, True), (1001, False), (-AHEAD_MS_MAX, True)]
)
def test_only_young_ids_are_used(age_ms, allowed):
    made = new_payload_id(NOW_MS)
    if allowed:
        check_age(made, NOW_MS + age_ms, 1000)
    else:
        with pytest.raises(InvalidPayload, match="1001 ms ago"):
            check_age(made, NOW_MS + age_ms, 1000)


def test_an_id_from_the_future_is_refused():
    with pytest.raises(InvalidPayload, match="ahead"):
        check_age(new_payload_id(NOW_MS + AHEAD_MS_MAX + 1), NOW_MS, 1000)


# -- the config ---------------------------------------------------------------------------------------------------


def test_a_topic_that_takes_payloads_bears_the_brokers_time():
    assert completed({"payload": "reference"})["message.timestamp.type"] == "LogAppendTime"
    assert completed({"payload": "inline"}) == {"payload": "inline"}
    assert completed({"retention.ms": "5"}) == {"retention.ms": "5"}
    with pytest.raises(InvalidConfig):
        check_configs({"payload": "reference", "message.timestamp.type": "CreateTime"})
    with pytest.raises(InvalidConfig):
        check_configs({"payload": "elsewhere"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"payload": "reference", "message.timestamp.type": "LogAppendTime"}),
        ({"payload": "reference", "message.timestamp.type": "LogAppendTime"}, {}),
        ({"payload": "reference", "message.timestamp.type": "LogAppendTime"}, {"payload": "inline"}),
        ({"payload": "reference", "message.timestamp.type": "LogAppendTime"}, {"payload": "reference"}),
    ],
)
def test_that_is_chosen_once(before, after):
    with pytest.raises(InvalidConfig):
        check_change(before, after)


def test_other_configs_may_change():
    kept = {"payload": "reference", "message.timestamp.type": "LogAppendTime"}
    check_change(kept, {**kept, "retention.ms": "5"})
    check_change({}, {"payload": "inline"})
