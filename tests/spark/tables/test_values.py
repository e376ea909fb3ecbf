"""Decoders without Spark: what comes out, and what is said of a value that is not what it should be."""

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from millpond.model.errors import InvalidRequest
from millpond.spark.tables.columns import nullable, table_schema
from millpond.spark.tables.values.protobuf import descriptors_of_module
from millpond.spark.tables.values.spec import ValueFormat, Values, avro_values, decoder, protobuf_values

SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "count", "type": "int"}]}}},
        {"name": "first", "type": ["null", "Line"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
ORDER = {
    "id": 7,
    "amount": Decimal("12.34"),
    "note": None,
    "at": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
    "day": dt.date(2026, 1, 2),
    "lines": [{"sku": "a", "count": 2}],
    "first": {"sku": "a", "count": 2},
    "tags": {"k": "v"},
    "state": "PAID",
    "uid": "0190",
}


def encoded(record: dict, schema: dict = SCHEMA) -> bytes:
    stripped = json.loads(json.dumps(schema).replace(', "logicalType": "uuid"', ""))
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(stripped), record)
    return stream.getvalue()


def decode(values: Values, *items: bytes | None) -> tuple[list, list]:
    column, errors = decoder(values)(pa.array(items, type=pa.binary()))
    return column.to_pylist(), errors.to_pylist()


def test_avro_records_become_rows_with_logical_types():
    rows, errors = decode(avro_values(json.dumps(SCHEMA)), encoded(ORDER))
    assert errors == [None]
    assert rows == [{**ORDER, "tags": [("k", "v")]}]


def test_an_avro_value_that_is_cut_short_or_too_long_is_bad_and_its_neighbours_are_not():
    good = encoded(ORDER)
    rows, errors = decode(avro_values(json.dumps(SCHEMA)), good, good[:-3], good + b"\0", None, b"", good)
    assert [row and row["id"] for row in rows] == [7, None, None, None, None, 7]
    assert [error is None for error in errors] == [True, False, False, True, False, True]
    assert "1 bytes are left over" in errors[2]


def test_confluents_five_bytes_are_needed_and_skipped():
    values = avro_values(json.dumps(SCHEMA), is_confluent=True)
    rows, errors = decode(
        values, b"\0\0\0\0\x2a" + encoded(ORDER), encoded(ORDER), b"\0\0", b"\1\0\0\0\1" + encoded(ORDER)
    )
    assert rows[0]["id"] == 7
    assert [error is None for error in errors] == [True, False, False, False]
    assert "Confluent" in errors[1]


def decimals(precision: int) -> dict:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 2}
    return {"type": "record", "name": "R", "fields": [{"name": "amount", "type": kind}]}


def test_a_value_that_decodes_but_fits_no_column_is_bad_alone():
    schema, wide = decimals(precision=4), decimals(precision=30)
    fits, too_wide = (
        encoded({"amount": Decimal("1.50")}, wide),
        encoded({"amount": Decimal("123456789.00")}, wide),
    )
    rows, errors = decode(avro_values(json.dumps(schema)), fits, too_wide, fits)
    assert rows == [{"amount": Decimal("1.50")}, None, {"amount": Decimal("1.50")}]
    assert [error is None for error in errors] == [True, False, True]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "not valid"),
        ('{"type": "nothing"}', "not valid"),
        ('["int", "string"]', "several types besides null"),
        ('{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}', "refers to itself"),
    ],
)
def test_an_avro_schema_that_no_table_can_have_is_refused(schema: str, said: str):
    with pytest.raises(InvalidRequest, match=said):
        decoder(avro_values(schema))


def test_a_schema_file_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(InvalidRequest, match=r"nowhere\.avsc"):
        avro_values(tmp_path / "nowhere.avsc")


def descriptor_set() -> bytes:
    """message Order { uint64 id = 1; string name = 2; State state = 3; repeated Line lines = 4;
    map<string, uint32> counts = 5; optional bool gift = 6; bytes raw = 7; Timestamp at = 8; }"""
    from google.protobuf import timestamp_pb2

    field = descriptor_pb2.FieldDescriptorProto
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    file = found.file.add(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    order.field.add(name="id", number=1, type=field.TYPE_UINT64, label=one)
    order.field.add(name="name", number=2, type=field.TYPE_STRING, label=one)
    order.field.add(name="state", number=3, type=field.TYPE_ENUM, type_name=".shop.State", label=one)
    order.field.add(name="lines", number=4, type=field.TYPE_MESSAGE, type_name=".shop.Line", label=many)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=field.TYPE_UINT32, label=one)
    order.field.add(
        name="counts", number=5, type=field.TYPE_MESSAGE, type_name=".shop.Order.CountsEntry", label=many
    )
    order.oneof_decl.add(name="_gift")
    order.field.add(
        name="gift", number=6, type=field.TYPE_BOOL, label=one, oneof_index=0, proto3_optional=True
    )
    order.field.add(name="raw", number=7, type=field.TYPE_BYTES, label=one)
    order.field.add(
        name="at", number=8, type=field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=one
    )
    return found.SerializeToString()


def protobuf_order(**fields: object) -> bytes:
    from google.protobuf.message_factory import GetMessageClass

    from millpond.spark.tables.values.protobuf import message_of

    return GetMessageClass(message_of(descriptor_set(), "shop.Order"))(**fields).SerializeToString()


def test_protobuf_messages_become_rows(tmp_path: Path):
    path = tmp_path / "order.desc"
    path.write_bytes(descriptor_set())
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC)
    full = protobuf_order(
        id=2**64 - 1,
        name="n",
        state=1,
        lines=[{"sku": "a"}],
        counts={"x": 2**32 - 1},
        gift=False,
        raw=b"\xff",
        at=at,
    )
    rows, errors = decode(
        protobuf_values(path, "shop.Order"), full, b"", None, b"\xff\xff", protobuf_order(state=9)
    )
    assert rows[0] == {
        "id": Decimal(2**64 - 1), "name": "n", "state": "PAID", "lines": [{"sku": "a"}],
        "counts": [("x", 2**32 - 1)], "gift": False, "raw": b"\xff", "at": at,
    }  # fmt: skip
    assert rows[1]["gift"] is None
    assert rows[1]["at"] is None
    assert rows[1]["state"] == "NEW"
    assert rows[2] is None
    assert rows[4]["state"] == "9"
    assert [error is None for error in errors] == [True, True, True, False, True]


def test_a_module_made_by_protoc_serves_as_well():
    from google.rpc.status_pb2 import Status

    values = protobuf_values("google.rpc.status_pb2", "google.rpc.Status")
    rows, errors = decode(values, Status(code=3, message="no").SerializeToString())
    assert (rows, errors) == ([{"code": 3, "message": "no", "details": []}], [None])


def test_a_message_that_contains_itself_and_one_that_is_not_there_are_refused():
    with pytest.raises(InvalidRequest, match="contains itself"):
        decoder(protobuf_values("google.protobuf.struct_pb2", "google.protobuf.Struct"))
    with pytest.raises(InvalidRequest, match=r"shop\.Nothing"):
        decoder(Values(ValueFormat.PROTOBUF, descriptors=descriptor_set(), message="shop.Nothing"))
    with pytest.raises(InvalidRequest, match="no Protobuf descriptor set"):
        decoder(Values(ValueFormat.PROTOBUF, descriptors=b"\xff\xff\xff", message="a"))
    with pytest.raises(InvalidRequest, match="not made by protoc"):
        descriptors_of_module("json")


def test_text_that_is_no_utf8_is_bad_and_its_neighbours_are_not():
    rows, errors = decode(Values(ValueFormat.STRING), "grüß".encode(), b"\xff", None, b"")
    assert rows == ["grüß", None, None, ""]
    assert [error is None for error in errors] == [True, False, True, True]


def test_a_field_named_like_a_column_of_every_table_is_refused_unless_nested():
    value = pa.struct([("id", pa.int64()), ("Offset", pa.int64())])
    with pytest.raises(InvalidRequest, match="'Offset'"):
        table_schema(value, keys_are_text=False, is_nested=False)
    assert table_schema(value, keys_are_text=False, is_nested=True).names[-1] == "value"


def test_types_allow_nulls_at_every_depth_and_small_numbers_grow():
    kind = pa.struct([pa.field("a", pa.list_(pa.field("x", pa.int8(), nullable=False)), nullable=False)])
    assert nullable(kind) == pa.struct([pa.field("a", pa.list_(pa.field("element", pa.int32())))])
