"""What the compiled codecs promise: nothing copied, unknown tags passed over, defaults for what a version lacks."""

import pytest
from tests.unit.protocol.samples import in_every_version, sample, written

from millpond.model.errors import MalformedMessage
from millpond.protocol import NO_UUID, decode, encode
from millpond.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from millpond.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from millpond.protocol.messages.group_admin import DeleteGroupsRequest
from millpond.protocol.messages.groups import HeartbeatRequest, JoinGroupResponse
from millpond.protocol.messages.nodes import CurrentLeader
from millpond.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from millpond.protocol.messages.sasl import SaslAuthenticateRequest
from millpond.protocol.primitives import read_uvarint, uvarint
from millpond.protocol.schema import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int64,
    Request,
    String,
    Struct,
    UInt16,
    UInt32,
    Uuid,
    field,
    request,
    struct,
)

BATCH = bytes(range(256)) * 64


def joined(encoded):
    return b"".join(encoded.buffers)


def produce(records):
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetched(parts):
    partition = PartitionData(partition_index=0, high_watermark=9, records=parts)
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=[partition])])


@in_every_version
def test_every_message_survives_the_way_out_and_back(kind, version):
    message = sample(kind, version)
    encoded = encode(message, version)
    assert encoded.size == len(joined(encoded))
    assert decode(kind, version, joined(encoded)) == message


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("holder", [bytes, bytearray, memoryview])
def test_records_are_read_as_a_view_of_the_request(version, holder):
    data = joined(encode(produce(BATCH), version))
    frame = holder(data)
    records = decode(ProduceRequest, version, frame).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is (data if holder is memoryview else frame)
    assert records == BATCH


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_are_written_as_the_very_buffers_they_came_in(version):
    parts = [BATCH, memoryview(BATCH)[:100], bytearray(b"batch")]
    encoded = encode(fetched(parts), version)
    assert all(any(buffer is part for buffer in encoded.buffers) for part in parts)
    assert encoded.size == sum(map(len, encoded.buffers))
    read = decode(FetchResponse, version, joined(encoded)).responses[0].partitions[0].records
    assert read == [b"".join(parts)]


def test_records_of_a_request_are_not_copied_when_written():
    encoded = encode(produce(BATCH), 9)
    assert sum(buffer is BATCH for buffer in encoded.buffers) == 1


@pytest.mark.parametrize("version", [4, 12])
def test_records_may_be_null_or_empty(version):
    for records, expected in ((None, None), ([], [b""]), ([b""], [b""])):
        data = joined(encode(fetched(records), version))
        assert decode(FetchResponse, version, data).responses[0].partitions[0].records == expected


@pytest.mark.parametrize(
    ("size", "length"),
    [(0, b"\x01"), (126, b"\x7f"), (127, b"\x80\x01"), (128, b"\x81\x01"), (16_383, b"\x80\x80\x01")],
)
def test_compact_lengths_grow_where_seven_bits_end(size, length):
    strings = DeleteGroupsRequest(groups_names=["x" * size])
    blob = SaslAuthenticateRequest(auth_bytes=b"x" * size)
    array = DeleteGroupsRequest(groups_names=["a"] * size)
    assert joined(encode(strings, 2)) == b"\x02" + length + b"x" * size + b"\0"
    assert joined(encode(blob, 2)) == length + b"x" * size + b"\0"
    assert joined(encode(array, 2)) == length + b"\x02a" * size + b"\0"
    for message in (strings, blob, array):
        assert decode(type(message), 2, joined(encode(message, 2))) == message


@pytest.mark.parametrize("bits", range(33))
def test_varints_of_every_size_are_read_as_written(bits):
    for value in {max((1 << bits) - 1, 0), min(1 << bits, (1 << 32) - 1)}:
        data = uvarint(value)
        assert len(data) == max(1, -(-value.bit_length() // 7))
        assert read_uvarint(b"?" + data, 1) == (value, 1 + len(data))


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_varint_of_more_than_32_bits_is_not_written(value):
    with pytest.raises(ValueError, match="does not fit"):
        uvarint(value)


def test_the_head_comes_first_and_in_the_same_buffer():
    encoded = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 0, b"head")
    assert len(encoded.buffers) == 1
    assert bytes(encoded.buffers[0]) == b"head\0\1g\0\0\0\1\0\1m"


def test_unknown_tags_are_passed_over():
    plain = b"\x02a\x02b"
    for tags in (b"\x01\x63\x03xyz", b"\x02\x00\x00\x63\x01x", b"\x01\xff\xff\xff\xff\x0f\x00"):
        read = decode(ApiVersionsRequest, 3, plain + tags)
        assert read == ApiVersionsRequest(client_software_name="a", client_software_version="b")


def test_unknown_tags_between_known_ones_are_passed_over():
    known = joined(encode(ApiVersionsResponse(api_keys=[], finalized_features_epoch=5), 3))
    assert known.endswith(b"\x01" + b"\x01\x08" + (5).to_bytes(8, "big"))
    count = known.index(b"\x01\x01\x08")
    noisy = (
        known[:count]
        + b"\x04"
        + b"\x01\x08"
        + (5).to_bytes(8, "big")
        + b"\x03\x01\x01"
        + b"\x09\x02??"
        + b"\x7f\0"
    )
    read = decode(ApiVersionsResponse, 3, noisy)
    assert read.finalized_features_epoch == 5
    assert read.zk_migration_ready


def test_unknown_tags_inside_nested_structs_are_passed_over():
    data = joined(encode(produce(b"r"), 9))
    assert data.endswith(b"\x02r\0\0\0")
    noisy = data[:-3] + b"\x01\x05\x02no" + b"\x01\x06\0" + b"\x01\x07\x01!"
    assert decode(ProduceRequest, 9, noisy) == produce(b"r")


def test_tags_at_their_default_are_not_written():
    answer = PartitionProduceResponse(index=1, base_offset=2)
    moved = PartitionProduceResponse(
        index=1, base_offset=2, current_leader=CurrentLeader(leader_id=3, leader_epoch=4)
    )
    sizes = []
    for partition in (answer, moved):
        message = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
        data = joined(encode(message, 10))
        assert decode(ProduceResponse, 10, data) == message
        sizes.append(len(data))
    assert sizes[1] - sizes[0] == 2 + 8 + 1  # tag and size, two numbers, the struct's own tags


def test_tags_are_left_out_of_versions_without_them():
    """A leader hint in a version before v10 would be read as something else."""
    moved = PartitionProduceResponse(
        index=1, base_offset=2, current_leader=CurrentLeader(leader_id=3, leader_epoch=4)
    )
    message = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[moved])])
    for version in (8, 9):
        read = decode(ProduceResponse, version, joined(encode(message, version)))
        assert read.responses[0].partition_responses[0].current_leader is None


def test_a_field_that_a_version_lacks_has_its_default():
    fetch = FetchRequest(max_wait_ms=1, min_bytes=2, topics=[], rack_id="r", session_id=9)
    old = decode(FetchRequest, 4, joined(encode(fetch, 4)))
    assert (old.rack_id, old.session_id, old.session_epoch, old.max_bytes) == ("", 0, -1, 2**31 - 1)
    assert old.forgotten_topics_data == []
    assert decode(FetchRequest, 11, joined(encode(fetch, 11))) == fetch


def test_defaults_that_are_lists_are_not_shared():
    data = joined(encode(FetchRequest(max_wait_ms=1, min_bytes=2, topics=[]), 4))
    one, other = decode(FetchRequest, 4, data), decode(FetchRequest, 4, data)
    assert one.forgotten_topics_data is not other.forgotten_topics_data


def test_null_is_allowed_only_in_the_versions_that_say_so():
    answer = JoinGroupResponse(protocol_name=None, leader="", member_id="m", members=[])
    assert decode(JoinGroupResponse, 7, joined(encode(answer, 7))) == answer
    with pytest.raises(ValueError, match="JoinGroupResponse v6 cannot be written"):
        encode(answer, 6)


@pytest.mark.parametrize(
    "changes",
    [{"generation_id": 2**31}, {"generation_id": None}, {"group_id": "x" * 32_768}, {"group_id": None}],
)
@pytest.mark.parametrize("version", [3, 4])
def test_a_value_that_does_not_fit_is_our_mistake(changes, version):
    values = {"group_id": "g", "generation_id": 1, "member_id": "m"} | changes
    with pytest.raises(ValueError, match=f"HeartbeatRequest v{version} cannot be written"):
        encode(HeartbeatRequest(**values), version)


def test_an_id_must_have_sixteen_bytes():
    """`struct` would have padded it."""
    topic = TopicProduceData(topic_id=b"short", partition_data=[])
    with pytest.raises(ValueError, match="a uuid has 16 bytes, not 5"):
        encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 13)


@pytest.mark.parametrize("version", [2, 14, -1])
def test_a_version_without_codec_is_our_mistake(version):
    with pytest.raises(ValueError, match="ProduceRequest has versions 3-13"):
        decode(ProduceRequest, version, b"")
    with pytest.raises(ValueError, match="ProduceRequest has versions 3-13"):
        encode(produce(b""), version)


@struct
class Point(Struct):
    x: Int8
    label: String | None


@request(key=999, versions="0-2", flexible="1+")
class Everything(Request):
    """The types that no message here uses yet."""

    port: UInt16
    sum: UInt32
    ratio: Float64
    ratios: list[Float64]
    ids: list[Uuid]
    flags: list[Bool]
    blobs: list[Bytes]
    numbers: list[Int64] | None
    point: Point | None
    corner: Point
    when: Int64 = field("2+", default=3)
    tagged_point: Point | None = field("1+", tag=2, default=None)
    tagged_ids: list[Uuid] | None = field("1+", tag=0, default=None)
    tagged_text: String = field("1+", tag=1, default="x")


def everything(**changes):
    values = {
        "port": 65_535,
        "sum": 2**32 - 1,
        "ratio": 0.5,
        "ratios": [1.0, -2.5],
        "ids": [NO_UUID, b"x" * 16],
        "flags": [True, False],
        "blobs": [b"", b"ab"],
        "numbers": [-1, 2**63 - 1],
        "point": Point(x=1, label="p"),
        "corner": Point(x=-1, label=None),
    }
    return Everything(**(values | changes))


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    "changes", [{}, {"point": None}, {"numbers": None}, {"ids": [], "ratios": [], "flags": []}]
)
def test_every_type_of_the_wire_survives(version, changes):
    message = everything(**changes)
    data = joined(encode(message, version))
    assert decode(Everything, version, data) == message
    for end in range(len(data)):
        with pytest.raises(MalformedMessage):
            decode(Everything, version, data[:end])


@pytest.mark.parametrize(
    "changes",
    [
        {"tagged_point": Point(x=1, label="t")},
        {"tagged_ids": []},
        {"tagged_ids": [b"y" * 16]},
        {"tagged_text": ""},
    ],
)
def test_every_kind_of_tag_survives(changes):
    message = everything(**changes)
    assert decode(Everything, 1, joined(encode(message, 1))) == message


def test_tags_are_written_in_their_order():
    """KIP-482 asks for ascending numbers, whatever the order of declaration."""
    message = everything(tagged_point=Point(x=1, label="t"), tagged_ids=[], tagged_text="y")
    data = joined(encode(message, 1))
    assert data.endswith(b"\x03" + b"\x00\x01\x01" + b"\x01\x02\x02y" + b"\x02\x04\x01\x02t\x00")


def test_samples_fill_every_field():
    assert len(written(ProduceResponse, 10)) > len(written(ProduceResponse, 9))
