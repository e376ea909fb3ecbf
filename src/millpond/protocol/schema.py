"""The declaration language for messages: each message is declared once, for all its versions.

    @request(key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest(Request):
        group_id: String
        group_instance_id: String | None = field("3+", default=None)

A field without `field()` is present in every version and required. A field that some version lacks has a default,
which decoders of that version return. `X | None` may be null in every version, or in those that `nullable` names.
A tagged field equal to its default is not encoded. A tagged struct is `None` when its tag is absent.

Messages are mutable only because constructing frozen ones takes two and a half times as long. Code must not
change a message after it is constructed.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, dataclass_transform, overload

from millpond.model.buffers import Buffer
from millpond.protocol.primitives import UUID_BYTES

T = TypeVar("T")

VERSION_MAX = 0x7FFF


class Versions(NamedTuple):
    """An inclusive range, written as Kafka writes it: "3+", "0-12", "7", "none"."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


ALWAYS = Versions(0, VERSION_MAX)


@dataclasses.dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-width value: one `struct` format."""

    format: str
    size: int


class Sized(Enum):
    """A value prefixed with its length."""

    TEXT = "string"
    BYTES = "bytes"
    RECORDS = "records"
    RECORD_PARTS = "record parts"


Bool = Annotated[bool, Fixed("?", 1)]
Int8 = Annotated[int, Fixed("b", 1)]
Int16 = Annotated[int, Fixed("h", 2)]
UInt16 = Annotated[int, Fixed("H", 2)]
Int32 = Annotated[int, Fixed("i", 4)]
UInt32 = Annotated[int, Fixed("I", 4)]
Int64 = Annotated[int, Fixed("q", 8)]
Float64 = Annotated[float, Fixed("d", 8)]
Uuid = Annotated[bytes, Fixed("16s", UUID_BYTES)]
String = Annotated[str, Sized.TEXT]
Bytes = Annotated[bytes, Sized.BYTES]
Records = Annotated[Buffer, Sized.RECORDS]
"""Record batches as one buffer: a memoryview of the message when decoded, not copied when encoded."""
RecordParts = Annotated[Sequence[Buffer], Sized.RECORD_PARTS]
"""Record batches in several buffers, which follow each other in the encoding. Decoded as one buffer."""

NO_UUID = bytes(UUID_BYTES)


class Struct:
    """A part of a message; `@struct` builds its class. Comparison and repr are implemented once here:
    generating them for each of two hundred classes would add a tenth of a second to every broker start."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # structs are mutable

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _names(type(self)))

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in _names(type(self)))
        return f"{type(self).__qualname__}({', '.join(shown)})"


def _names(cls: type[Struct]) -> list[str]:
    return [declared.name for declared in dataclasses.fields(cls)]  # type: ignore[arg-type]  # every Struct is a dataclass


class WireMessage(Struct):
    """A request or a response."""

    __slots__ = ()
    api_key: ClassVar[int]
    versions: ClassVar[Versions]
    flexible: ClassVar[Versions]
    """The versions with compact lengths and tagged fields (KIP-482). Unlike `versions`, the range is open-ended."""


class Response(WireMessage):
    __slots__ = ()


class Request(WireMessage):
    __slots__ = ()
    response: ClassVar[type[Response]]


S = TypeVar("S", bound=Struct)
Q = TypeVar("Q", bound=Request)
R = TypeVar("R", bound=Response)


@dataclasses.dataclass(frozen=True, slots=True)
class Presence:
    """The versions in which a field exists and may be null, and its tag."""

    versions: Versions = ALWAYS
    nullable: Versions | None = None
    tag: int | None = None


_PRESENCE = "millpond.presence"


@overload
def field(versions: str = ..., *, nullable: str | None = ..., tag: int | None = ..., default: T) -> T: ...
@overload
def field(
    versions: str = ..., *, nullable: str | None = ..., tag: int | None = ..., factory: Callable[[], T]
) -> T: ...
@overload
def field(versions: str = ..., *, nullable: str | None = ...) -> Any: ...
def field(
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int | None = None,
    default: Any = dataclasses.MISSING,
    factory: Any = dataclasses.MISSING,
) -> Any:
    """Declares the versions in which a field exists, those in which it may be null, its tag, and its default
    when absent. Versions use Kafka's notation."""
    presence = Presence(Versions.parse(versions), Versions.parse(nullable) if nullable else None, tag)
    return dataclasses.field(default=default, default_factory=factory, metadata={_PRESENCE: presence})


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[S]) -> type[S]:
    return _made(cls)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def request(*, key: int, versions: str, flexible: str) -> Callable[[type[Q]], type[Q]]:
    def decorate(cls: type[Q]) -> type[Q]:
        made = _made(cls)
        made.api_key, made.versions, made.flexible = key, Versions.parse(versions), Versions.parse(flexible)
        return made

    return decorate


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def response(*, to: type[Request]) -> Callable[[type[R]], type[R]]:
    """A response has its request's key and versions, and is flexible from the same version."""

    def decorate(cls: type[R]) -> type[R]:
        made = _made(cls)
        made.api_key, made.versions, made.flexible = to.api_key, to.versions, to.flexible
        to.response = made
        return made

    return decorate


def _made(cls: type[S]) -> type[S]:
    return dataclasses.dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)


FieldType = Fixed | Sized | type[Struct]


_PARSED_HINTS: dict[type[Struct], dict[str, tuple[FieldType, bool, bool]]] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field as it exists in one version."""

    name: str
    kind: FieldType
    array: bool
    nullable: bool
    tag: int | None
    default: Any

    def element(self) -> "FieldSpec":
        """The spec of an array's element, under the array's name. Elements are never null."""
        return dataclasses.replace(self, array=False, nullable=False, tag=None)


def fields_in(cls: type[Struct], version: int) -> list[FieldSpec]:
    """The fields of `version`, in declaration order, which is the encoding order."""
    found = []
    for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # every Struct is a dataclass
        presence = declared.metadata.get(_PRESENCE, Presence())
        if version in presence.versions:
            found.append(_spec(cls, declared, presence, version))
    return found


def _spec(
    cls: type[Struct], declared: "dataclasses.Field[Any]", presence: Presence, version: int
) -> FieldSpec:
    kind, array, optional = _hints(cls)[declared.name]
    if presence.tag is not None and isinstance(kind, type) and not array:
        optional = False  # None means that the tag is absent and nothing is encoded
    nullable = optional and (presence.nullable is None or version in presence.nullable)
    return FieldSpec(declared.name, kind, array, nullable, presence.tag, default_of(declared))


def default_of(declared: "dataclasses.Field[Any]") -> Any:
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory()
    return declared.default


def _hints(cls: type[Struct]) -> dict[str, tuple[FieldType, bool, bool]]:
    """The declared types by field, parsed once per class."""
    if cls not in _PARSED_HINTS:
        hints = typing.get_type_hints(cls, include_extras=True)
        _PARSED_HINTS[cls] = {name: _parse_hint(hints[name]) for name in _names(cls)}
    return _PARSED_HINTS[cls]


def _parse_hint(hint: Any) -> tuple[FieldType, bool, bool]:
    """Returns the kind, whether it is an array, and whether it is nullable."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not types.NoneType)
        kind, array, _ = _parse_hint(inner)
        return kind, array, True
    if origin is list:
        return _parse_hint(arguments[0])[0], True, False
    if origin is Annotated and isinstance(arguments[1], Fixed | Sized):
        return arguments[1], False, False
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint, False, False
    raise TypeError(f"{hint} is not a type of the wire")


def check(cls: type[Struct], versions: Versions) -> None:
    """Reject a declaration that some version cannot encode or decode. Tests call this for every message."""
    for declared in dataclasses.fields(cls):  # type: ignore[arg-type]  # every Struct is a dataclass
        presence: Presence = declared.metadata.get(_PRESENCE, Presence())
        kind, array, optional = _hints(cls)[declared.name]
        field_path = f"{cls.__name__}.{declared.name}"
        everywhere = presence.versions.first <= versions.first and presence.versions.last >= versions.last
        if default_of(declared) is dataclasses.MISSING and (presence.tag is not None or not everywhere):
            raise TypeError(f"{field_path} needs a default: not every version has it")
        if presence.nullable is not None and not optional:
            raise TypeError(f"{field_path} is nullable in some versions, but its type is not")
        if optional and not array and isinstance(kind, Fixed):
            raise TypeError(f"{field_path} has no null on the wire")
        if presence.tag is not None and kind in (Sized.RECORDS, Sized.RECORD_PARTS):
            raise TypeError(f"{field_path} cannot be tagged: the size of a tag is written before it")
        if isinstance(kind, type):
            check(kind, Versions(*_overlap(versions, presence.versions)))


def _overlap(one: Versions, other: Versions) -> tuple[int, int]:
    return max(one.first, other.first), min(one.last, other.last)
