"""The kinds of value, as a request names them and as tasks are told."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from millpond.model.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(StrEnum):
    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    CONFLUENT_AVRO = "confluent-avro"
    """Avro behind five bytes, a zero and a schema's number, as Confluent's serializers write it."""
    PROTOBUF = "protobuf"


@dataclass(frozen=True, slots=True)
class Values:
    """What the values are. `schema` is a DDL for JSON and an .avsc's text for Avro; for Protobuf `descriptors` is a
    FileDescriptorSet and `message` the full name of a message in it."""

    kind: Kind = Kind.BINARY
    schema: str = ""
    descriptors: bytes = b""
    message: str = ""


class Decoder(Protocol):
    """Values of one batch in, a column out, with what is wrong with each (null: nothing). A missing value is not
    wrong: it is null."""

    def __call__(self, values: "pa.Array") -> "tuple[pa.Array, pa.Array]": ...


def json_values(ddl: str) -> Values:
    return Values(Kind.JSON, schema=ddl)


def avro_values(schema: str | Path, *, is_confluent: bool = False) -> Values:
    """From an .avsc file, or its text."""
    text = _read(schema).decode() if isinstance(schema, Path) else schema
    return Values(Kind.CONFLUENT_AVRO if is_confluent else Kind.AVRO, schema=text)


def protobuf_values(source: str | Path, message: str) -> Values:
    """From a descriptor set (`protoc --include_imports --descriptor_set_out=FILE`), or the name of a module that
    protoc made."""
    if isinstance(source, Path):
        return Values(Kind.PROTOBUF, descriptors=_read(source), message=message)
    from millpond.spark.tables.values.protobuf import descriptors_of_module

    return Values(Kind.PROTOBUF, descriptors=descriptors_of_module(source), message=message)


def decoder(values: Values) -> Decoder:
    """For tasks. JSON has none: Spark has decoded it before."""
    if values.kind in (Kind.AVRO, Kind.CONFLUENT_AVRO):
        from millpond.spark.tables.values.avro import AvroDecoder

        return AvroDecoder(values.schema, is_confluent=values.kind is Kind.CONFLUENT_AVRO)
    if values.kind is Kind.PROTOBUF:
        from millpond.spark.tables.values.protobuf import ProtobufDecoder

        return ProtobufDecoder(values.descriptors, values.message)
    from millpond.spark.tables.values.plain import as_is, as_text

    return as_text if values.kind is Kind.STRING else as_is


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(reason=f"schema file {path} cannot be read: {error.strerror}") from error
