"""Whatever arrives, a decoder returns a message or raises MalformedMessage, soon and without much memory."""

import random
import struct
import tracemalloc

import pytest
from tests.unit.protocol.samples import in_every_version, smallest, written

from millpond.model.errors import MalformedMessage
from millpond.protocol import decode
from millpond.protocol.decoder import smallest_size
from millpond.protocol.encoder import write_encoder
from millpond.protocol.messages.api_versions import ApiVersionsResponse
from millpond.protocol.messages.cluster import DescribeLogDirsRequest
from millpond.protocol.messages.group_admin import DeleteGroupsRequest
from millpond.protocol.messages.metadata import MetadataRequest, MetadataResponse
from millpond.protocol.messages.produce import ProduceRequest
from millpond.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from millpond.protocol.primitives import ELEMENTS_MAX, TAGS_MAX, TEXT_BYTES_MAX, read_uvarint, uvarint
from millpond.protocol.schema import FieldSpec, fields_in

SEED = 20_240_607
FLIPS = 60
LENGTH_MAX = 2**31 - 1
PEAK_BYTES_MAX = 100_000


def decodes(kind, version, data):
    """Whether it is a message; any exception but MalformedMessage fails the test."""
    try:
        decode(kind, version, data)
    except MalformedMessage:
        return False
    return True


@in_every_version
def test_a_message_cut_at_any_byte_is_refused(kind, version):
    data = written(kind, version)
    assert decodes(kind, version, data)
    for end in range(len(data)):
        assert not decodes(kind, version, data[:end]), end
        assert not decodes(kind, version, memoryview(data)[:end]), end


@in_every_version
def test_bytes_behind_a_message_are_refused(kind, version):
    with pytest.raises(MalformedMessage, match="not part of it"):
        decode(kind, version, written(kind, version) + b"\0")


@in_every_version
def test_flipped_bytes_are_read_or_refused(kind, version):
    data = written(kind, version)
    chance = random.Random(f"{SEED} {kind.__name__} {version}")
    for _ in range(FLIPS if data else 0):
        flipped = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            flipped[chance.randrange(len(data))] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        decodes(kind, version, bytes(flipped))


@in_every_version
def test_noise_is_read_or_refused(kind, version):
    chance = random.Random(f"{SEED} noise {kind.__name__} {version}")
    for size in (1, 2, 7, 40, 300):
        decodes(kind, version, chance.randbytes(size))


def refused(kind, version, data):
    """The reason, after checking that refusing took little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessage) as caught:
            decode(kind, version, data)
        assert tracemalloc.get_traced_memory()[1] < PEAK_BYTES_MAX
    finally:
        tracemalloc.stop()
    return caught.value.facts["reason"]


def warm(kind, version):
    """Compile the codec, which takes memory of its own."""
    decodes(kind, version, b"")


def structs_in(kind, version):
    """The kinds of struct that a message holds, itself included."""
    yield kind
    for spec in fields_in(kind, version):
        if isinstance(spec.kind, type):
            yield from structs_in(spec.kind, version)


@in_every_version
def test_the_least_size_of_an_element_is_that_of_an_empty_one(kind, version):
    """Too high would refuse good messages, too low would let a count promise more than can come."""
    flexible = version in kind.flexible
    for inner in structs_in(kind, version):
        spec = FieldSpec("element", inner, array=False, nullable=False, tag=None, default=None)
        buffers = write_encoder(inner, version, flexible)(smallest(inner, version), bytearray())
        assert smallest_size(spec, version, flexible) == sum(map(len, buffers))


@pytest.mark.parametrize("length", [-2, 6, TEXT_BYTES_MAX])
def test_a_string_length_is_compared_with_what_is_left(length):
    warm(SaslHandshakeRequest, 1)
    reason = refused(SaslHandshakeRequest, 1, struct.pack(">h", length) + b"PLAIN")
    assert f"mechanism cannot have length {length} with 5 bytes left" in reason


@pytest.mark.parametrize("length", [-2, -(2**31), 6, LENGTH_MAX])
def test_a_bytes_length_is_compared_with_what_is_left(length):
    warm(SaslAuthenticateRequest, 1)
    reason = refused(SaslAuthenticateRequest, 1, struct.pack(">i", length) + b"token")
    assert f"auth_bytes cannot have length {length} with 5 bytes left" in reason


def test_null_is_refused_where_it_is_not_allowed():
    for version, null in ((1, b"\xff\xff\xff\xff"), (2, b"\0\0")):
        with pytest.raises(MalformedMessage, match="auth_bytes must not be null"):
            decode(SaslAuthenticateRequest, version, null)
    with pytest.raises(MalformedMessage, match="mechanism must not be null"):
        decode(SaslHandshakeRequest, 1, b"\xff\xff")
    with pytest.raises(MalformedMessage, match="groups_names must not be null"):
        decode(DeleteGroupsRequest, 1, b"\xff\xff\xff\xff")


def test_a_compact_length_is_compared_with_what_is_left():
    warm(SaslAuthenticateRequest, 2)
    reason = refused(SaslAuthenticateRequest, 2, b"\xff\xff\xff\xff\x0f" + b"token\0")
    assert f"cannot have length {2**32 - 2}" in reason


def test_a_string_longer_than_kafka_allows_is_refused():
    data = b"\x02" + b"\x81\x80\x02" + b"x" * (TEXT_BYTES_MAX + 1) + b"\0"
    with pytest.raises(MalformedMessage, match="cannot have length 32768"):
        decode(DeleteGroupsRequest, 2, data)


@pytest.mark.parametrize("count", [-2, 2, 1000, LENGTH_MAX, -(2**31)])
def test_an_array_count_is_compared_with_the_least_its_elements_take(count):
    """Three bytes hold one string of at least two, not two."""
    warm(DeleteGroupsRequest, 1)
    reason = refused(DeleteGroupsRequest, 1, struct.pack(">i", count) + b"\0\1x")
    assert f"groups_names cannot have {count} elements with 3 bytes left" in reason


def test_an_array_of_numbers_is_not_unpacked_before_it_is_measured():
    """Replicas of a partition: a format for 2^31 numbers must not even be made."""
    version = 0
    warm(MetadataResponse, version)
    topic = struct.pack(">ihh", 1, 0, 1) + b"t" + struct.pack(">ihii", 1, 0, 0, 0)
    for count in (1, LENGTH_MAX):
        data = struct.pack(">i", 0) + topic + struct.pack(">i", count)
        reason = refused(MetadataResponse, version, data)
        assert "replica_nodes cannot have" in reason or "partitions cannot have" in reason


def test_a_nested_array_count_is_bounded_too():
    warm(ProduceRequest, 9)
    data = b"\0" + b"\0\1" + b"\0\0\0\1" + b"\x02" + b"\x02t" + b"\xff\xff\xff\xff\x07"
    assert "partition_data cannot have" in refused(ProduceRequest, 9, data + b"\0" * 64)


def test_elements_of_all_arrays_together_are_bounded():
    """Two bytes an element would fit the frame, and become a hundred times as much in memory."""
    count = ELEMENTS_MAX + 1
    warm(MetadataRequest, 0)
    data = struct.pack(">i", count) + b"\0\0" * count
    assert f"topics cannot have {count} elements" in refused(MetadataRequest, 0, data)


def test_elements_of_several_arrays_are_counted_together():
    """Each of the two lists of partitions would be allowed alone."""
    half = ELEMENTS_MAX // 2
    topic = b"\0\1t" + struct.pack(">i", half) + bytes(4 * half)
    assert decodes(DescribeLogDirsRequest, 1, struct.pack(">i", 1) + topic)
    with pytest.raises(MalformedMessage, match=f"partitions cannot have {half} elements"):
        decode(DescribeLogDirsRequest, 1, struct.pack(">i", 2) + topic + topic)


@pytest.mark.parametrize(
    "data", [b"\xff" * 4, b"\xff" * 5, b"\xff" * 400, b"\x80" * 5, b"\xff\xff\xff\xff\x10"]
)
def test_a_varint_has_at_most_five_bytes_and_32_bits(data):
    with pytest.raises((MalformedMessage, IndexError)):
        read_uvarint(data, 0)
    assert not decodes(DeleteGroupsRequest, 2, data)


def test_a_varint_may_be_longer_than_it_needs_to_be_up_to_five_bytes():
    assert read_uvarint(b"\x81\x80\x80\x80\x00", 0) == (1, 5)
    assert read_uvarint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)
    with pytest.raises(MalformedMessage, match="does not fit 32 bits"):
        read_uvarint(b"\x81\x80\x80\x80\x80\x00", 0)


def test_text_that_is_not_utf8_is_refused():
    with pytest.raises(MalformedMessage, match="SaslHandshakeRequest v1 holds text that is not UTF-8"):
        decode(SaslHandshakeRequest, 1, b"\0\2\xc3\x28")


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(b"\xff\xff\xff\xff\x0f", id="more tags than bytes"),
        pytest.param(b"\x02\x63\x00", id="fewer tags than counted"),
        pytest.param(b"\x01\x63\x05abc", id="a tag longer than the message"),
        pytest.param(b"\x01\x63\xff\xff\xff\xff\x0f", id="a tag of 4 GiB"),
        pytest.param(b"\x01\xff\xff\xff\xff\x7f\x00", id="a tag number of 35 bits"),
    ],
)
def test_damaged_tagged_fields_are_refused(tags):
    warm(DeleteGroupsRequest, 2)
    assert decodes(DeleteGroupsRequest, 2, b"\x01\x00")
    refused(DeleteGroupsRequest, 2, b"\x01" + tags)


@pytest.mark.parametrize("tags", [b"\x01\x63\x05abc", b"\x01\x01\x09" + bytes(8)], ids=["unknown", "known"])
def test_a_tag_longer_than_the_message_is_refused_before_it_is_read(tags):
    with pytest.raises(MalformedMessage, match="a tagged field cannot have length"):
        decode(ApiVersionsResponse, 3, b"\0\0" + b"\1" + b"\0\0\0\0" + tags)


def test_more_known_tags_than_bytes_are_refused():
    with pytest.raises(MalformedMessage, match="tagged fields cannot have 3 elements with 4 bytes left"):
        decode(ApiVersionsResponse, 3, b"\0\0" + b"\1" + b"\0\0\0\0" + b"\x03\x63\0\x64\0")


def test_a_struct_has_no_more_tags_than_the_limit():
    assert decodes(DeleteGroupsRequest, 2, b"\x01" + uvarint(TAGS_MAX) + b"\x63\0" * TAGS_MAX)
    many = TAGS_MAX + 1
    with pytest.raises(MalformedMessage, match=f"tagged fields cannot have {many} elements"):
        decode(DeleteGroupsRequest, 2, b"\x01" + uvarint(many) + b"\x63\0" * many)


def test_tags_of_many_structs_are_counted_with_the_elements():
    """Passing over a tag takes as long as reading an element."""
    tags = uvarint(TAGS_MAX) + b"\x63\0" * TAGS_MAX
    topics = ELEMENTS_MAX // TAGS_MAX
    for count, fits in ((topics - 1, True), (topics, False)):
        data = uvarint(count + 1) + (b"\x02t" + tags) * count + b"\1\0\0\0"
        assert decodes(MetadataRequest, 9, data) == fits


@pytest.mark.parametrize("size", [7, 9])
def test_a_known_tag_must_be_as_long_as_its_value(size):
    """An eight-byte number that says it has seven or nine bytes."""
    body = b"\0\0" + b"\1" + b"\0\0\0\0" + b"\x01"
    assert decodes(ApiVersionsResponse, 3, body + b"\x01\x08" + bytes(8))
    with pytest.raises(MalformedMessage, match="finalized_features_epoch is not as long as it says"):
        decode(ApiVersionsResponse, 3, body + bytes([1, size]) + bytes(12))


def test_the_reason_names_message_version_and_field():
    with pytest.raises(MalformedMessage) as caught:
        decode(SaslHandshakeRequest, 1, b"\x7f\xff")
    assert str(caught.value) == (
        "The bytes are not a valid Kafka message: "
        "SaslHandshakeRequest v1: mechanism cannot have length 32767 with 0 bytes left."
    )
