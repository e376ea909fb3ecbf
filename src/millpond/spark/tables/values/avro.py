"""Decodes Avro values with a given schema, through fastavro.

The schema is the one that the values were written with. A union may hold null and one other type, because a
column has one type. Logical types that tables have no column type for (times of day, UUIDs, durations) keep
the type that they are stored as.
"""

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from millpond.model.errors import InvalidRequest
from millpond.spark.tables.values.plain import decode_each

if TYPE_CHECKING:
    import pyarrow as pa

WIRE_PREFIX_BYTES: Final = 5
KEPT_LOGICAL_TYPES: Final = frozenset(
    {
        "decimal",
        "date",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    }
)
PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
DEPTH_MAX: Final = 64


class AvroDecoder:
    def __init__(self, schema: str, *, is_confluent: bool) -> None:
        import fastavro

        self._read = fastavro.schemaless_reader
        self._schema = parsed(schema)
        self._prefix = WIRE_PREFIX_BYTES if is_confluent else 0
        self._is_record = isinstance(self._schema, dict) and self._schema.get("type") == "record"
        self.type = _column(schema)

    def __call__(self, values: "pa.Array") -> "tuple[pa.Array, pa.Array]":
        return decode_each(values, self.type, self._decode)

    def _decode(self, value: bytes) -> Any:
        if self._prefix and (len(value) < self._prefix or value[0] != 0):
            raise ValueError("not in Confluent's format: it does not begin with a zero and a schema's number")
        stream = io.BytesIO(value)
        stream.seek(self._prefix)
        decoded = self._read(stream, self._schema)
        if stream.tell() != len(value):
            raise ValueError(f"{len(value) - stream.tell()} bytes are left over: another schema wrote this")
        return decoded


def parsed(schema: str) -> Any:
    """The schema parsed for fastavro. Raises `InvalidRequest` if it is not a valid Avro schema."""
    import fastavro

    try:
        return fastavro.parse_schema(_without_other_logical_types(json.loads(schema)))
    except (ValueError, KeyError, TypeError, fastavro.schema.SchemaParseException) as error:
        raise InvalidRequest(reason=f"the Avro schema is not valid: {error}") from error
    except fastavro.schema.UnknownType as error:
        raise InvalidRequest(reason=f"the Avro schema is not valid: unknown type {error.name!r}") from error


def _column(schema: str) -> "pa.DataType":
    parsed(schema)
    return _Types().of(_without_other_logical_types(json.loads(schema)), "", 0)


def _without_other_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_other_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: _without_other_logical_types(part) for name, part in schema.items() if name != "default"}
    if schema.get("logicalType") not in KEPT_LOGICAL_TYPES:
        kept.pop("logicalType", None)
    return kept


class _Types:
    """Converts Avro types to Arrow types. Named types are remembered, because the schema may refer to them
    later by name."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}

    def of(self, schema: Any, space: str, depth: int) -> "pa.DataType":
        if depth > DEPTH_MAX:
            raise InvalidRequest(reason="the Avro schema refers to itself: a column cannot")
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return self._plain({"type": schema}, schema)
            return self.of(self._find(schema, space), space, depth + 1)
        return self._complex(schema, space, depth)

    def _complex(self, schema: Mapping[str, Any], space: str, depth: int) -> "pa.DataType":
        import pyarrow as pa

        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind, space, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            space = self._remember(schema, space)
        if kind in ("record", "error"):
            return pa.struct(
                [(each["name"], self.of(each["type"], space, depth + 1)) for each in schema["fields"]]
            )
        if kind == "array":
            return pa.list_(pa.field("element", self.of(schema["items"], space, depth + 1)))
        if kind == "map":
            return pa.map_(pa.string(), self.of(schema["values"], space, depth + 1))
        if kind in PRIMITIVES or kind in ("enum", "fixed"):
            return self._plain(schema, kind)
        return self.of(self._find(kind, space), space, depth + 1)

    def _union(self, branches: list[Any], space: str, depth: int) -> "pa.DataType":
        others = [branch for branch in branches if branch != "null"]
        if len(others) != 1:
            reason = "a union in the Avro schema has several types besides null: a column has one"
            raise InvalidRequest(reason=reason)
        return self.of(others[0], space, depth + 1)

    def _plain(self, schema: Mapping[str, Any], kind: str) -> "pa.DataType":
        import pyarrow as pa

        logical = schema.get("logicalType")
        if logical == "decimal":
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        if logical == "date":
            return pa.date32()
        if logical is not None:
            return pa.timestamp("us", None if logical.startswith("local") else "UTC")
        return {
            "null": pa.string(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "bytes": pa.binary(),
            "fixed": pa.binary(),
            "string": pa.string(),
            "enum": pa.string(),
        }[kind]

    def _remember(self, schema: Mapping[str, Any], space: str) -> str:
        name = schema["name"]
        if "." in name:
            space = name.rpartition(".")[0]
        else:
            space = schema.get("namespace", space)
            name = f"{space}.{name}" if space else name
        self._named[name] = schema
        return space

    def _find(self, name: str, space: str) -> Mapping[str, Any]:
        full = name if "." in name or not space else f"{space}.{name}"
        return self._named.get(full) or self._named[name]
