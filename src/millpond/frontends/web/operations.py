"""Declares the operations of the HTTP interface: each one once, by the decorator `operation` on its handler.

Routing, decoding, validation and the OpenAPI document all use these declarations, so they cannot disagree.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope

from millpond.frontends.web.convert import decode_json
from millpond.frontends.web.errors import HttpError
from millpond.frontends.web.limits import WebLimits
from millpond.frontends.web.schemas import RequestStruct
from millpond.frontends.web.site import Site
from millpond.model.errors import MillpondError
from millpond.security.access import Access
from millpond.security.requirements import Requirement, Rule

JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
NO_TYPE: Final = ""
"""The content type of a request without a Content-Type header."""

P = TypeVar("P", bound=msgspec.Struct)
Q = TypeVar("Q", bound=msgspec.Struct)
B = TypeVar("B")


class NoParameters(RequestStruct, frozen=True):
    """The path or query of an operation that has no parameters there."""


@dataclass(frozen=True, slots=True)
class HttpCall(Generic[P, Q, B]):
    """One validated request: `path` and `query` are its parameters, `body` its decoded body. Its client has the rights
    that the operation declares; `access` answers what else it may do."""

    site: Site
    access: Access
    path: P
    query: Q
    body: B
    headers: Headers
    receive: Receive
    scope: Scope


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A response that is not JSON or is already encoded JSON."""

    content: bytes
    media_type: str = JSON
    headers: Sequence[tuple[bytes, bytes]] = ()
    status: int = 200


@dataclass(frozen=True, slots=True)
class StreamedResponse:
    """A response that is sent in chunks as they become available. `release` is called when it has ended. `failure`
    encodes the error of a client whose rights end as the last chunk; without it the response is aborted."""

    chunks: AsyncGenerator[bytes, None]
    media_type: str
    release: Callable[[], None]
    headers: Sequence[tuple[bytes, bytes]] = ()
    failure: Callable[[MillpondError], bytes] | None = None


BodyChunks = AsyncGenerator[bytes, None]
"""A request body that the handler receives in chunks as they arrive."""
HandlerResult = msgspec.Struct | RawResponse | StreamedResponse | None
"""What a handler returns. A struct is sent as JSON; None as status 204."""
OperationHandler = Callable[[HttpCall[P, Q, B]], Awaitable[HandlerResult]]


@dataclass(frozen=True, slots=True)
class NonJsonContent:
    """Describes a response that is not JSON, or JSON without a struct, for the OpenAPI document."""

    media_types: Sequence[str]
    meaning: str


@dataclass(frozen=True, slots=True)
class RequestBody(Generic[B]):
    """The request body of an operation. `content_types` maps each accepted content type to the structs it may contain,
    or to a description (for the OpenAPI document). Unless `required`, a missing body counts as an empty one. A body
    that `holds_messages` has a higher size limit. A `streamed` body is not decoded: its handler reads it in chunks."""

    content_types: Mapping[str, Sequence[type[msgspec.Struct]] | str]
    decode: Callable[[Site, str, Headers, bytes], B] | None = None
    required: bool = True
    holds_messages: bool = False
    streamed: bool = False

    def bytes_max(self, content_type: str, limits: WebLimits) -> int:
        if not self.holds_messages:
            return min(limits.document_bytes_max, limits.json_bytes_max)
        return limits.json_bytes_max if content_type == JSON else limits.request_bytes_max

    def content_type_of(self, headers: Headers) -> str:
        if headers.get("content-encoding", "identity") != "identity":
            raise HttpError(415, "UnsupportedEncoding", "Compressed request bodies are not supported.")
        content_type = headers.get("content-type", NO_TYPE).partition(";")[0].strip().lower()
        if content_type != NO_TYPE and content_type not in self.content_types:
            raise HttpError(
                415,
                "UnsupportedContentType",
                f"This operation does not accept a body of type {content_type[:100]!r}.",
                details={"taken": list(self.content_types)},
                headers=[("accept", ", ".join(self.content_types))],
            )
        return content_type


def json_body(struct: type[B]) -> RequestBody[B]:
    decoder = msgspec.json.Decoder(struct)
    assert issubclass(struct, msgspec.Struct), "its name is needed in the OpenAPI document"
    return RequestBody({JSON: [struct]}, lambda _, __, ___, content: decode_json(decoder, content))


NO_BODY: Final[RequestBody[None]] = RequestBody({}, lambda _, __, ___, ____: None)


@dataclass(frozen=True, slots=True)
class Operation:
    """One declared operation. Any operation can be refused with the statuses of `openapi.ALWAYS_REFUSED`, this one
    also with `error_statuses`. `redirects`: a request may be redirected to another broker. `rule`: the rights that
    clients need, whose fields are `path.<name>` or `body.<name>`."""

    method: str
    path: str
    rule: Rule
    handler: OperationHandler[Any, Any, Any]
    parameters: type[msgspec.Struct]
    query: type[msgspec.Struct]
    body: RequestBody[Any]
    returns: Mapping[int, type[msgspec.Struct] | Sequence[type[msgspec.Struct]] | NonJsonContent | None]
    error_statuses: Sequence[int]
    redirects: bool

    @property
    def name(self) -> str:
        return self.handler.__name__

    @property
    def summary(self) -> str:
        """The handler's docstring."""
        return " ".join((self.handler.__doc__ or "").split())

    def requirements(self, *, of_body: bool) -> list[Requirement]:
        """The requirements that depend on the body, or the others, which are checked before the body is read."""
        return [each for each in self.rule.requirements if _reads_body(each) == of_body]

    @property
    def streams(self) -> bool:
        return any(
            isinstance(each, NonJsonContent) and "text/event-stream" in each.media_types
            for each in self.returns.values()
        )


OPERATIONS: Final[list[Operation]] = []
"""All operations, in the order in which they were declared."""


def operation(
    method: str,
    path: str,
    *,
    rights: Rule,
    parameters: type[P],
    query: type[Q],
    body: RequestBody[B],
    returns: Mapping[int, type[msgspec.Struct] | Sequence[type[msgspec.Struct]] | NonJsonContent | None],
    error_statuses: Sequence[int] = (),
    redirects: bool = False,
) -> Callable[[OperationHandler[P, Q, B]], OperationHandler[P, Q, B]]:
    """Declare an operation; the decorated function is its handler. See `Operation`."""

    def register(handler: OperationHandler[P, Q, B]) -> OperationHandler[P, Q, B]:
        OPERATIONS.append(
            Operation(
                method, path, rights, handler, parameters, query, body, returns, error_statuses, redirects
            )
        )
        return handler

    return register


def _reads_body(requirement: Requirement) -> bool:
    return any(field.startswith("body.") for field in requirement.fields())
