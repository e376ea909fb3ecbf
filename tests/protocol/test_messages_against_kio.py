"""Every message in every version against kio, in both directions: the same bytes, and the same values read back.

kio gives some integers richer types (times, error codes, ids); `to_kio` translates. Its names are Kafka's without
the unit at the end.
"""

import dataclasses
import importlib
import io
import pkgutil
import typing
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import kio.schema
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from tests.unit.protocol.samples import in_every_version

from millpond.protocol import (
    REQUESTS,
    ErrorCode,
    Request,
    RequestHeader,
    Response,
    WireMessage,
    decode,
    encode,
    encode_request,
    encode_response,
    read_request_header,
    read_response_header,
)
from millpond.protocol.schema import NO_UUID, FieldSpec, Fixed, Sized, Struct, fields_in

BEYOND_OURS = {("DescribeLogDirs", 5), ("InitProducerId", 6)}
"""What kio has and Kafka 4.2 does not serve, or serves only as unstable."""
FEW = settings(
    max_examples=4,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def kio_schema(name: str, version: int, direction: str) -> type[Any]:
    """kio's class of the same name; its modules are named in snake case."""
    module = importlib.import_module(f"kio.schema.{folders()[name.lower()]}.v{version}.{direction}")
    found = [
        kind
        for kind in vars(module).values()
        if getattr(kind, "__name__", "").lower() == f"{name}{direction}".lower()
    ]
    return found[0]


def folders() -> dict[str, str]:
    return {module.name.replace("_", ""): module.name for module in pkgutil.iter_modules(kio.schema.__path__)}


def kio_class(kind: type[WireMessage], version: int) -> type[Any]:
    direction = "request" if kind.__name__.endswith("Request") else "response"
    return kio_schema(kind.__name__.removesuffix("Request").removesuffix("Response"), version, direction)


# Making instances


INTEGERS = {"b": 8, "h": 16, "i": 32, "q": 64}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MILLISECONDS = st.integers(-1, 2**31 - 1)
"""-1 is Kafka's "none"; the rest fits into what Python calls a time."""


def strategy(kind: type[Struct], version: int, full: bool) -> st.SearchStrategy[Any]:
    """`full`: nothing is null, no array empty, every tag there, so that few examples touch every field."""
    values = {spec.name: field_strategy(spec, version, full) for spec in fields_in(kind, version)}
    return st.builds(kind, **values)


def field_strategy(spec: FieldSpec, version: int, full: bool) -> st.SearchStrategy[Any]:
    made = value_strategy(spec, version, full)
    if spec.array:
        made = st.lists(made, min_size=int(full), max_size=1 + 2 * full)
    if full:
        return made
    if spec.tag is not None:
        return st.just(spec.default) | made
    return st.none() | made if spec.nullable else made


def value_strategy(spec: FieldSpec, version: int, full: bool) -> st.SearchStrategy[Any]:
    if isinstance(spec.kind, type):
        inside = strategy(spec.kind, version, full)
        if spec.tag is None or spec.array:
            return inside
        # With nothing but defaults in it, kio leaves the tag out; we do so when it is None.
        return inside.filter(lambda value: value != spec.kind())
    if spec.kind is Sized.TEXT:
        return TEXT
    if spec.kind is Sized.RECORD_PARTS:
        return st.lists(st.binary(max_size=40), min_size=1, max_size=3)
    if isinstance(spec.kind, Sized):
        return st.binary(max_size=200)
    return fixed_strategy(spec.name, spec.kind)


def fixed_strategy(name: str, kind: Fixed) -> st.SearchStrategy[Any]:
    if kind.format == "?":
        return st.booleans()
    if kind.format == "16s":
        return st.just(NO_UUID) | st.binary(min_size=16, max_size=16)
    if name.endswith("error_code") and name != "topic_config_error_code":
        return st.sampled_from(list(ErrorCode)).map(int)
    if name == "log_append_time_ms":  # kio reads times in whole seconds
        return st.just(-1) | st.integers(0, 2**31).map(lambda seconds: seconds * 1000)
    if name.endswith("_ms"):
        return MILLISECONDS
    if kind.format == "d":
        return st.floats(allow_nan=False)
    bits = INTEGERS[kind.format]
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# Translation


def to_kio(message: Struct, kind: type[Any], version: int) -> Any:
    """The instance of kio's class that means the same."""
    ours = {spec.name.removesuffix("_ms"): spec for spec in fields_in(type(message), version)}
    theirs = {field.name: field for field in dataclasses.fields(kind)}
    values = {
        name: field_to_kio(getattr(message, spec.name), spec, theirs[name], version)
        for name, spec in ours.items()
    }
    return kind(**values)


def field_to_kio(value: Any, spec: FieldSpec, field: Any, version: int) -> Any:
    if isinstance(spec.kind, type):
        if value is None and not spec.array:
            return field.default  # a tag that is absent
        if value is None:
            return None
        inner = dataclass_in(field.type)
        if spec.array:
            return tuple(to_kio(item, inner, version) for item in value)
        return to_kio(value, inner, version)
    if spec.array:
        return None if value is None else tuple(value)
    return scalar_to_kio(value, spec, field.metadata["kafka_type"])


def dataclass_in(hint: Any) -> Any:
    """The struct inside `X`, `X | None`, `tuple[X, ...]`; None if there is none."""
    if dataclasses.is_dataclass(hint):
        return hint
    inside = map(dataclass_in, typing.get_args(hint))
    return next((found for found in inside if found is not None), None)


def scalar_to_kio(value: Any, spec: FieldSpec, kafka_type: str) -> Any:
    if spec.kind is Sized.RECORD_PARTS:
        return None if value is None else b"".join(value)
    match kafka_type:
        case "error_code":
            return KioErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(value / 1000, UTC)
        case "uuid":
            return None if value == NO_UUID else uuid.UUID(bytes=value)
    return value


def joined(message: Any) -> Any:
    """With every list of record parts as one part, as a reader sees it."""
    if isinstance(message, list):
        return [joined(item) for item in message]
    if not dataclasses.is_dataclass(message):
        return message
    changes = {}
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        is_parts = (
            isinstance(value, list) and value and isinstance(value[0], bytes) and field.name == "records"
        )
        changes[field.name] = [b"".join(value)] if is_parts else joined(value)
    return dataclasses.replace(message, **changes)


def written_by_kio(kind: type[Any], message: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(kind)(out, message)
    return out.getvalue()


# Comparing declarations


WIRE = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "float64": "d",
    "int64": "q",
    "bool": "?",
    "uuid": "16s",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
    "string": Sized.TEXT,
    "bytes": Sized.BYTES,
}
NULL_IN_PYTHON_ONLY = {"uuid", "datetime_i64"}
"""kio reads zero or -1 as None; the wire has no null for them."""


def compare_declarations(ours: type[Struct], theirs: type[Any], version: int) -> None:
    specs = fields_in(ours, version)
    fields = {field.name: field for field in dataclasses.fields(theirs)}
    in_order = [spec.name.removesuffix("_ms") for spec in specs if spec.tag is None]
    assert in_order == [name for name, field in fields.items() if "tag" not in field.metadata]
    assert {spec.name.removesuffix("_ms") for spec in specs} == set(fields)
    for spec in specs:
        compare_field(spec, fields[spec.name.removesuffix("_ms")], version)


def compare_field(spec: FieldSpec, field: Any, version: int) -> None:
    kafka_type = field.metadata.get("kafka_type")
    assert spec.tag == field.metadata.get("tag"), spec.name
    assert spec.array == ("tuple[" in str(field.type)), spec.name
    if kafka_type not in NULL_IN_PYTHON_ONLY:
        assert spec.nullable == ("None" in str(field.type)), spec.name
    if isinstance(spec.kind, type):
        compare_declarations(spec.kind, dataclass_in(field.type), version)
        return
    if kafka_type == "records":
        assert spec.kind in (Sized.RECORDS, Sized.RECORD_PARTS)
    else:
        assert WIRE[kafka_type] == (spec.kind.format if isinstance(spec.kind, Fixed) else spec.kind), (
            spec.name
        )
    if dataclasses.MISSING not in (field.default, spec.default) and not spec.array:
        assert scalar_to_kio(spec.default, spec, kafka_type) == field.default, f"default of {spec.name}"


# The tests


def test_every_version_that_kafka_serves_is_declared():
    """Nothing kio has of our APIs is missing, except what is said."""
    missing = set()
    for request in REQUESTS.values():
        name = request.__name__.removesuffix("Request")
        package = importlib.import_module(f"kio.schema.{folders()[name.lower()]}")
        theirs = {int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__)}
        assert set(range(request.versions.first, request.versions.last + 1)) <= theirs
        missing |= {(name, version) for version in theirs if version not in request.versions}
    assert missing == BEYOND_OURS


@pytest.fixture(scope="module")
def compared(figures):
    """The versions that turned out equal."""
    found: set[tuple[type[WireMessage], int]] = set()
    yield found
    figures.append(
        f"{len(found)} message versions equal kio's ({len({kind.api_key for kind, _ in found})} APIs)"
    )


@in_every_version
def test_the_declaration_is_kios(kind, version):
    """Names, order, types, tags, nullability and defaults."""
    theirs = kio_class(kind, version)
    assert theirs.__api_key__ == kind.api_key
    assert theirs.__flexible__ == (version in kind.flexible)
    compare_declarations(kind, theirs, version)


@in_every_version
def test_the_bytes_and_the_values_are_kios(kind, version, compared):
    theirs = kio_class(kind, version)
    header = written_by_kio(theirs.__header_schema__, kio_header(kind, theirs, version))

    def check(message):
        same = to_kio(message, theirs, version)
        expected = written_by_kio(theirs, same)
        encoded = encode(message, version)
        assert b"".join(encoded.buffers) == expected
        assert encoded.size == len(expected)
        assert decode(kind, version, expected) == joined(message)
        read, size = entity_reader(theirs)(expected, 0)
        assert (read, size) == (same, len(expected))
        assert framed(message, version) == (len(header + expected)).to_bytes(4, "big") + header + expected

    for full in (True, False):
        FEW(given(strategy(kind, version, full))(check))()
    compared.add((kind, version))


CORRELATION_ID, CLIENT_ID = 7, "grüße"


def kio_header(kind: type[WireMessage], theirs: type[Any], version: int) -> Any:
    if issubclass(kind, Response):
        return theirs.__header_schema__(correlation_id=CORRELATION_ID)
    return theirs.__header_schema__(
        request_api_key=kind.api_key,
        request_api_version=version,
        correlation_id=CORRELATION_ID,
        client_id=CLIENT_ID,
    )


def framed(message: WireMessage, version: int) -> bytes:
    if isinstance(message, Request):
        return b"".join(encode_request(message, version, CORRELATION_ID, CLIENT_ID).buffers)
    assert isinstance(message, Response)
    return b"".join(encode_response(message, version, CORRELATION_ID).buffers)


@in_every_version
def test_the_header_is_read_as_kio_writes_it(kind, version):
    theirs = kio_class(kind, version)
    header = written_by_kio(theirs.__header_schema__, kio_header(kind, theirs, version))
    if issubclass(kind, Request):
        expected = RequestHeader(kind.api_key, version, CORRELATION_ID, CLIENT_ID)
        assert read_request_header(header) == (expected, len(header))
    else:
        assert read_response_header(header, kind.api_key, version) == (CORRELATION_ID, len(header))


def test_error_codes_are_kios():
    assert {code.name.lower(): int(code) for code in ErrorCode} == {
        code.name: code.value for code in KioErrorCode
    }
