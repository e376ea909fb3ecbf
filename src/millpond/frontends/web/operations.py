"""The operations of the HTTP interface: each one is declared once, directly above its handler.

Routing, decoding, validation and the OpenAPI document all use these declarations, so they cannot disagree.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive

from millpond.frontends.web.convert import decode_json
from millpond.frontends.web.errors import HttpError
from millpond.frontends.web.limits import WebLimits
from millpond.frontends.web.schemas import Given
from millpond.frontends.web.site import Site

JSON: Final = "application/json"
NO_TYPE: Final = ""
"""Stands for the content type of a request without a Content-Type header."""

P = TypeVar("P", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B")


class Nothing(Given, frozen=True):
    """No parameters."""


@dataclass(frozen=True, slots=True)
class HttpCall(Generic[P, Q, B]):
    """One validated request: `path` and `query` are its parameters, `body` its decoded body."""

    site: Site
    path: P
    query: Q
    body: B
    headers: Headers
    receive: Receive


@dataclass(frozen=True, slots=True)
class Raw:
    """A response that is not JSON or is already encoded JSON."""

    content: bytes
    media_type: str = JSON
    headers: Sequence[tuple[bytes, bytes]] = ()
    status: int = 200


@dataclass(frozen=True, slots=True)
class Stream:
    """A streamed response. `release` is called when it has ended."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str
    release: Callable[[], None]
    headers: Sequence[tuple[bytes, bytes]] = ()


Chunks = AsyncGenerator[bytes, None]
"""A body that is passed on as it arrives."""
Reply = msgspec.Struct | Raw | Stream | None
"""A struct is sent as JSON; None as status 204."""
OperationHandler = Callable[[HttpCall[P, Q, B]], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Other:
    """Describes content that is not JSON, for the OpenAPI document."""

    media_types: Sequence[str]
    meaning: str


@dataclass(frozen=True, slots=True)
class RequestBody(Generic[B]):
    """`kinds` are the accepted content types and their contents (for the OpenAPI document). Unless
    `required`, a missing body counts as an empty one. A body that `holds_messages` has a higher size limit. A
    `streamed` body is not decoded: its handler reads it in chunks."""

    kinds: Mapping[str, Sequence[type[msgspec.Struct]] | str]
    decode: Callable[[Site, str, Headers, bytes], B] | None = None
    required: bool = True
    holds_messages: bool = False
    streamed: bool = False

    def bytes_max(self, kind: str, limits: WebLimits) -> int:
        if not self.holds_messages:
            return min(limits.document_bytes_max, limits.json_bytes_max)
        return limits.json_bytes_max if kind == JSON else limits.request_bytes_max

    def kind_of(self, headers: Headers) -> str:
        if headers.get("content-encoding", "identity") != "identity":
            raise HttpError(415, "UnsupportedEncoding", "Compressed bodies are not taken.")
        given = headers.get("content-type", NO_TYPE).partition(";")[0].strip().lower()
        if given != NO_TYPE and given not in self.kinds:
            raise HttpError(
                415,
                "UnsupportedContentType",
                f"A body of type {given[:100]!r} is not taken here.",
                details={"taken": list(self.kinds)},
                headers=[("accept", ", ".join(self.kinds))],
            )
        return given


def json_body(kind: type[B]) -> RequestBody[B]:
    decoder = msgspec.json.Decoder(kind)
    assert issubclass(kind, msgspec.Struct), "so that it has a name in the document"
    return RequestBody({JSON: [kind]}, lambda _, __, ___, content: decode_json(decoder, content))


NO_BODY: Final[RequestBody[None]] = RequestBody({}, lambda _, __, ___, ____: None)


@dataclass(frozen=True, slots=True)
class Operation:
    """`error_statuses` are the statuses in addition to those that any operation can be refused with."""

    method: str
    path: str
    handler: OperationHandler[Any, Any, Any]
    parameters: type[msgspec.Struct]
    query: type[msgspec.Struct]
    body: RequestBody[Any]
    returns: Mapping[int, type[msgspec.Struct] | Sequence[type[msgspec.Struct]] | Other | None]
    error_statuses: Sequence[int]
    redirects: bool

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def summary(self) -> str:
        """The handler's docstring."""
        return " ".join((self.handler.__doc__ or "").split())

    @property
    def streams(self) -> bool:
        return any(
            isinstance(each, Other) and "text/event-stream" in each.media_types
            for each in self.returns.values()
        )


OPERATIONS: Final[list[Operation]] = []
"""In the order of their declaration."""


def operation(
    method: str,
    path: str,
    *,
    parameters: type[P],
    query: type[Q],
    body: RequestBody[B],
    returns: Mapping[int, type[msgspec.Struct] | Sequence[type[msgspec.Struct]] | Other | None],
    error_statuses: Sequence[int] = (),
    redirects: bool = False,
) -> Callable[[OperationHandler[P, Q, B]], OperationHandler[P, Q, B]]:
    """Declare the operation of the decorated handler. `redirects`: a request may be redirected to another broker."""

    def register(handler: OperationHandler[P, Q, B]) -> OperationHandler[P, Q, B]:
        OPERATIONS.append(
            Operation(method, path, handler, parameters, query, body, returns, error_statuses, redirects)
        )
        return handler

    return register
