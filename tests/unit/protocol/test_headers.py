"""Frames and headers, with the two exceptions that Kafka makes."""

import struct

import pytest

from millpond.model.errors import MalformedMessage
from millpond.protocol import (
    FRAME_BYTES_MAX,
    RequestHeader,
    decode,
    encode_request,
    encode_response,
    frame_length,
    read_request_header,
    read_response_header,
    request_header_version,
    response_header_version,
)
from millpond.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millpond.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


def frame(encoded):
    data = b"".join(encoded.buffers)
    assert frame_length(data[:4]) == len(data) - 4 == encoded.size - 4
    return data[4:]


@pytest.mark.parametrize("version", [0, 3, 4])
@pytest.mark.parametrize("client_id", [None, "", "spark-7", "naïve"])
def test_a_request_is_read_as_it_was_written(version, client_id):
    data = frame(encode_request(HEARTBEAT, version, -5, client_id))
    header, position = read_request_header(data)
    assert header == RequestHeader(12, version, -5, client_id)
    assert decode(HeartbeatRequest, version, data, position) == HEARTBEAT


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_response_is_read_as_it_was_written(version):
    answer = HeartbeatResponse(error_code=27)
    data = frame(encode_response(answer, version, 2**31 - 1))
    correlation_id, position = read_response_header(data, 12, version)
    assert correlation_id == 2**31 - 1
    assert position == (5 if version == 4 else 4)
    assert decode(HeartbeatResponse, version, data, position) == answer


def test_the_client_id_of_a_flexible_header_is_not_compact():
    data = frame(encode_request(HEARTBEAT, 4, 1, "me"))
    assert data.startswith(struct.pack(">hhi", 12, 4, 1) + b"\0\2me" + b"\0")


def test_the_answer_to_api_versions_never_has_a_flexible_header():
    for version in range(5):
        data = frame(encode_response(ApiVersionsResponse(error_code=35, api_keys=[]), version, 1))
        assert data.startswith(b"\0\0\0\1" + b"\0\x23")
        assert read_response_header(data, 18, version) == (1, 4)


def test_the_header_of_an_api_versions_request_of_the_future_is_read():
    """The client learns from the answer which versions exist, so its header must not be refused."""
    data = struct.pack(">hhih", 18, 99, 7, 2) + b"me" + b"\0" + b"whatever follows"
    header, position = read_request_header(data)
    assert header == RequestHeader(18, 99, 7, "me")
    assert data[position:] == b"whatever follows"


def test_the_header_of_an_unknown_api_is_read_as_far_as_all_headers_are_alike():
    data = struct.pack(">hhih", 900, 3, 7, -1) + b"?"
    assert read_request_header(data) == (RequestHeader(900, 3, 7, None), 10)


def test_header_versions():
    assert [
        request_header_version(*what) for what in ((7, 0), (12, 3), (12, 4), (18, 2), (18, 3), (47, 0))
    ] == [
        *(0, 1, 2, 1, 2, 1),
    ]
    assert [
        response_header_version(*what) for what in ((12, 3), (12, 4), (18, 2), (18, 3), (17, 1), (900, 0))
    ] == [
        *(0, 1, 0, 0, 0, 0),
    ]


def test_the_oldest_header_has_no_client_id():
    data = struct.pack(">hhi", 7, 0, 3) + b"\0\0\0\1"
    assert read_request_header(data) == (RequestHeader(7, 0, 3, None), 8)


def test_tags_of_a_header_are_passed_over():
    data = struct.pack(">hhih", 12, 4, 7, 0) + b"\x02\x00\x03abc\x63\x00" + b"body"
    header, position = read_request_header(data)
    assert header.client_id == ""
    assert data[position:] == b"body"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">hhih", 12, 4, 7, -2), id="length -2"),
        pytest.param(struct.pack(">hhih", 12, 4, 7, 3) + b"me", id="longer than the frame"),
        pytest.param(struct.pack(">hhih", 12, 3, 7, 3) + b"me", id="longer than the frame, without tags"),
        pytest.param(struct.pack(">hhih", 12, 4, 7, 2) + b"\xc3\x28\0", id="not UTF-8"),
        pytest.param(struct.pack(">hhih", 12, 4, 7, 0) + b"\xff\xff\xff\xff\x0f", id="too many tags"),
        pytest.param(struct.pack(">hhih", 12, 4, 7, 0) + b"\x01\x00\x05abc", id="a tag too long"),
        pytest.param(struct.pack(">hhih", 12, 4, 7, 0) + b"\xff" * 9, id="a varint too long"),
    ],
)
def test_a_damaged_header_is_refused(data):
    with pytest.raises(MalformedMessage):
        read_request_header(data)


def test_a_header_cut_at_any_byte_is_refused():
    data = struct.pack(">hhih", 12, 4, 7, 2) + b"me" + b"\x01\x00\x03abc"
    for end in range(len(data)):
        with pytest.raises(MalformedMessage):
            read_request_header(data[:end])
    answer = b"\0\0\0\1" + b"\x01\x00\x03abc"
    for end in range(len(answer)):
        with pytest.raises(MalformedMessage):
            read_response_header(answer[:end], 12, 4)


@pytest.mark.parametrize("length", [0, 1, FRAME_BYTES_MAX])
def test_a_frame_within_the_limit_is_let_in(length):
    assert frame_length(struct.pack(">i", length)) == length


@pytest.mark.parametrize("length", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_frame_beyond_the_limit_is_refused(length):
    with pytest.raises(MalformedMessage, match=f"a frame of {length} bytes"):
        frame_length(struct.pack(">i", length))


def test_the_limit_is_the_callers():
    assert frame_length(b"\0\0\0\x0a", 10) == 10
    with pytest.raises(MalformedMessage):
        frame_length(b"\0\0\0\x0b", 10)


def test_other_protocols_are_recognized():
    with pytest.raises(MalformedMessage, match="looks like TLS"):
        frame_length(b"\x16\x03\x01\x02")
    with pytest.raises(MalformedMessage, match="looks like HTTP"):
        frame_length(memoryview(b"GET "))


def test_api_versions_of_any_version_begins_with_nothing_else():
    data = frame(encode_request(ApiVersionsRequest(), 0, 1, None))
    assert data == struct.pack(">hhih", 18, 0, 1, -1)
