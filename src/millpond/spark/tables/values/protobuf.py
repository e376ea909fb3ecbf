"""Protobuf values with a given descriptor set.

Fields become columns: messages structs, enums their names, unsigned numbers the next type that holds them. A field
with presence that is not there is null; one without has its default, as Protobuf says. Bytes of fields that the
descriptors do not know are skipped, as Protobuf does: only what breaks its encoding is a bad value.
"""

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from millpond.model.errors import InvalidRequest
from millpond.spark.tables.values.plain import decode_each

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
    from google.protobuf.message import Message

TIMESTAMP: Final = "google.protobuf.Timestamp"
DEPTH_MAX: Final = 64

Reader = Callable[[Any], Any]


class ProtobufDecoder:
    def __init__(self, descriptors: bytes, message: str) -> None:
        from google.protobuf.message_factory import GetMessageClass

        described = message_of(descriptors, message)
        self._message: Callable[[], Message] = GetMessageClass(described)
        self.type = _struct(described, 0)  # first: it refuses a message that contains itself
        self._read = _reader(described)

    def __call__(self, values: "pa.Array") -> "tuple[pa.Array, pa.Array]":
        return decode_each(values, self.type, self._decode)

    def _decode(self, value: bytes) -> Any:
        message = self._message()
        message.ParseFromString(value)
        return self._read(message)


def message_of(descriptors: bytes, message: str) -> "Descriptor":
    """Raises `InvalidRequest` if these are no descriptors, or that message is not among them."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError

    pool = DescriptorPool()
    try:
        for file in FileDescriptorSet.FromString(descriptors).file:
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except DecodeError as error:
        raise InvalidRequest(reason=f"this is no Protobuf descriptor set: {error}") from error
    except (KeyError, TypeError) as error:
        reason = f"message {message!r} cannot be built from the descriptor set ({error}); has it all imports?"
        raise InvalidRequest(reason=reason) from error


def descriptors_of_module(name: str) -> bytes:
    """The descriptor set of a module made by protoc, with what it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

    try:
        described: FileDescriptor = importlib.import_module(name).DESCRIPTOR
    except (ImportError, AttributeError) as error:
        raise InvalidRequest(reason=f"module {name!r} was not made by protoc: {error}") from error
    found = FileDescriptorSet()
    for file in _with_imports(described, set()):
        file.CopyToProto(proto := FileDescriptorProto())
        found.file.append(proto)
    return found.SerializeToString()


def _with_imports(file: "FileDescriptor", seen: set[str]) -> "Iterable[FileDescriptor]":
    if file.name not in seen:
        seen.add(file.name)
        for each in file.dependencies:
            yield from _with_imports(each, seen)
        yield file


def _struct(message: "Descriptor", depth: int) -> "pa.DataType":
    import pyarrow as pa

    if depth > DEPTH_MAX:
        raise InvalidRequest(reason=f"message {message.full_name!r} contains itself: a column cannot")
    if not message.fields:
        raise InvalidRequest(reason=f"message {message.full_name!r} has no fields: there is no such column")
    return pa.struct([(field.name, _type(field, depth + 1)) for field in message.fields])


def _type(field: "FieldDescriptor", depth: int) -> "pa.DataType":
    import pyarrow as pa

    if _is_map(field):
        key, value = _entry(field)
        return pa.map_(_one_type(key, depth), _one_type(value, depth))
    one = _one_type(field, depth)
    return pa.list_(pa.field("element", one)) if field.is_repeated else one


def _one_type(field: "FieldDescriptor", depth: int) -> "pa.DataType":
    import pyarrow as pa

    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return pa.timestamp("us", "UTC")
        return _struct(field.message_type, depth)
    return {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
        field.CPPTYPE_ENUM: pa.string(),
        field.CPPTYPE_STRING: pa.binary() if field.type == field.TYPE_BYTES else pa.string(),
    }[field.cpp_type]


def _reader(message: "Descriptor") -> Reader:
    """A function from a message to what Arrow makes a struct of, put together once and not for each value."""
    if message.full_name == TIMESTAMP:
        return lambda moment: moment.seconds * 1_000_000 + moment.nanos // 1_000
    fields = [(field.name, field.has_presence, _field_reader(field)) for field in message.fields]

    def read(value: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not value.HasField(name) else convert(getattr(value, name))
            for name, has_presence, convert in fields
        }

    return read


def _field_reader(field: "FieldDescriptor") -> Reader:
    if _is_map(field):
        key, value = (_one_reader(part) for part in _entry(field))
        return lambda entries: [(key(k), value(v)) for k, v in entries.items()]
    one = _one_reader(field)
    return (lambda values: [one(value) for value in values]) if field.is_repeated else one


def _one_reader(field: "FieldDescriptor") -> Reader:
    if field.message_type is not None:
        return _reader(field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return lambda value: value


def _is_map(field: "FieldDescriptor") -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _entry(field: "FieldDescriptor") -> "tuple[FieldDescriptor, FieldDescriptor]":
    assert field.message_type is not None, "an entry of a map is a message"
    return field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
