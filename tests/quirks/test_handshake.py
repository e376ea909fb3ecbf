"""The first words of a connection: what a client must understand before it knows whom it talks to."""

import logging
import struct

import pytest
from tests.quirks.wire import request_head

from millpond.protocol import ErrorCode, decode
from millpond.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millpond.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millpond.protocol.messages.sasl import SaslHandshakeRequest

API_VERSIONS, METADATA, PRODUCE = 18, 3, 0
HEADER_V0_END, HEADER_V1_END = 4, 5
NO_TAGS = b"\0"
NAMES = b"\x04abc\x021\0"
"""Client software name and version, and no tags: the body of ApiVersions v3."""
BETWEEN_BROKERS = {4, 5, 6, 7, 27, *range(52, 55), 56, 58, 59, *range(62, 65), 67, 70, 73, *range(80, 90)}


def asked(name="millpond-tests", version="1.0"):
    return ApiVersionsRequest(client_software_name=name, client_software_version=version)


@pytest.mark.parametrize("version", [3, 4])
async def test_api_versions_is_answered_with_header_v0_although_it_is_flexible(client, version):
    """KIP-511 makes this one exception, so that an answer can be read before the versions are known; franz-go and
    the Java client read it that way, and a broker that adds the tag byte is taken for garbage."""
    answer = await client.raw(API_VERSIONS, version, NAMES, NO_TAGS)
    response = decode(ApiVersionsResponse, version, answer, HEADER_V0_END)
    assert response.error_code == ErrorCode.NONE
    assert API_VERSIONS in {each.api_key for each in response.api_keys}


async def test_every_other_flexible_answer_has_header_v1(client):
    """Tansu and others wrote v0 headers on flexible answers: every field behind it is then read one byte too early."""
    answer = await client.raw(METADATA, 9, b"\x01\x00\x00\x00\x00", NO_TAGS)
    assert answer[HEADER_V0_END:HEADER_V1_END] == NO_TAGS
    assert decode(MetadataResponse, 9, answer, HEADER_V1_END).topics == []


@pytest.mark.parametrize("version", [5, 99, 0x7FFF])
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0_and_then_works(client, version):
    """kafka-python 3, franz-go and Java begin with the newest version they know and go down by what this answer
    says; a broker that hangs up instead keeps every newer client out."""
    answer = await client.raw(API_VERSIONS, version, b"whatever comes later", NO_TAGS)
    response = decode(ApiVersionsResponse, 0, answer, HEADER_V0_END)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [(18, 0, 4)]
    assert (await client.ask(asked(), 4)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("client_id", ["sarama", "", None])
async def test_the_client_id_keeps_its_two_byte_length_in_flexible_headers(client, client_id):
    """Header v2 is flexible but for this field, which must be readable before the version is known; parsers that
    expected a compact string here broke on every modern client."""
    client.write_framed(request_head(API_VERSIONS, 3, 5, client_id) + NO_TAGS + NAMES)
    answer = await client.receive()
    assert struct.unpack_from(">ih", answer) == (5, ErrorCode.NONE)


@pytest.mark.parametrize("version", [3, 4])
async def test_client_software_names_that_could_not_be_metrics_are_refused(client, version):
    """Kafka uses the names as metric tags and refuses others (KIP-511); clients rely on being told so."""
    for name in ("", "a b", "a/b", "-a", "a-", "ü"):
        for request in (asked(name=name), asked(version=name)):
            assert (await client.ask(request, version)).error_code == ErrorCode.INVALID_REQUEST


async def test_client_software_names_of_real_clients_are_taken(client):
    """The rule is about characters: Kafka takes long names, and names of one letter."""
    for name in ("a", "librdkafka", "apache-kafka-java", "a.b-c", "a" * 300):
        assert (await client.ask(asked(name=name), 3)).error_code == ErrorCode.NONE


async def test_features_are_told_from_version_3_and_those_from_zero_only_from_version_4(client):
    """Java clients before 3.9 failed on a supported feature whose lowest version is 0 (KAFKA-17011); without the
    finalized one newer clients do not use the safer transactions."""
    told = {version: await client.ask(asked(), version) for version in range(5)}
    supported = {version: [each.name for each in told[version].supported_features] for version in told}
    finalized = {
        version: {each.name: each.max_version_level for each in told[version].finalized_features}
        for version in told
    }
    assert supported == {
        0: [],
        1: [],
        2: [],
        3: [],
        4: ["group.version", "share.version", "transaction.version"],
    }
    versions = {"group.version": 1, "share.version": 1, "transaction.version": 2}
    assert finalized == {0: {}, 1: {}, 2: {}, 3: versions, 4: versions}
    assert [told[version].finalized_features_epoch for version in (0, 3, 4)] == [-1, 0, 0]


async def test_produce_is_advertised_from_version_0_and_refused_below_3(client):
    """librdkafka turns compression off without a word unless Produce v0 is advertised (KAFKA-18659)."""
    versions = {each.api_key: each for each in (await client.ask(asked(), 3)).api_keys}
    assert (versions[PRODUCE].min_version, versions[PRODUCE].max_version) == (0, 13)
    for version in (0, 1, 2):
        async with client.another() as other:
            other.write_framed(request_head(PRODUCE, version) + bytes(16))
            assert await other.is_closed()


async def test_nothing_is_advertised_that_is_not_spoken(client):
    """Consoles show a page for each key they find, and clients that may choose use the newer kinds of groups as soon
    as they are there: what brokers say to each other, and what is not made yet, must not be."""
    keys = {each.api_key for each in (await client.ask(asked(), 3)).api_keys}
    assert not keys & BETWEEN_BROKERS


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (-1, 0), (1, 3), (1, 99), (METADATA, 99), (METADATA, -1), (4, 0)]
)
async def test_unknown_keys_and_versions_are_answered_by_hanging_up(client, key, version):
    """There is no answer whose form the client would know. Kafka hangs up as well, and clients count on it."""
    client.write_framed(request_head(key, version) + bytes(16))
    assert await client.is_closed()


@pytest.mark.parametrize("version", [0, 1])
async def test_sasl_on_a_listener_without_it_is_told_so(client, version):
    """A client set up for SASL that is merely disconnected tries again for ever; with this answer it says why."""
    answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    answer = await client.ask(asked(), 3)
    assert answer.error_code == ErrorCode.NONE
    keys = {each.api_key for each in answer.api_keys}
    assert 17 in keys
    assert 36 not in keys


async def test_api_versions_may_be_asked_at_any_time(client):
    """Nothing says that it must come first, or only once."""
    assert (await client.ask(asked(), 0)).error_code == ErrorCode.NONE
    assert (await client.ask(MetadataRequest(topics=[]), 1)).topics == []
    assert (await client.ask(asked(), 4)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (bytes.fromhex("16030100c8010000c40303"), "TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "HTTP"),
    ],
)
async def test_tls_and_http_are_recognized_and_the_log_says_so(client, caplog, data, hint):
    """Read as a length, both are hundreds of megabytes: brokers that waited for them left people without a clue."""
    with caplog.at_level(logging.INFO, "millpond.frontends.kafka"):
        client.write_bytes(data)
        assert await client.is_closed()
    assert [hint in record.reason for record in caplog.records if hasattr(record, "reason")] == [True]


@pytest.mark.parametrize("length", [-1, -5, 100 * 1024 * 1024 + 1, 0x7FFF_FFFF])
async def test_a_length_that_no_request_has_is_refused_before_its_bytes_come(client, length):
    """Nothing may be reserved for a length alone: a few such frames would otherwise take all the memory."""
    client.write_bytes(struct.pack(">i", length))
    assert await client.is_closed()


@pytest.mark.parametrize("frame", [b"", b"abc", request_head(API_VERSIONS, 0)[:-3]])
async def test_a_header_that_is_cut_short_is_answered_by_hanging_up(client, frame):
    """Without a correlation id nobody could tell what an answer belongs to."""
    client.write_framed(frame)
    assert await client.is_closed()
