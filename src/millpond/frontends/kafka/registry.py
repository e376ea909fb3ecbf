"""Maps requests to handlers. Handlers register themselves; ApiVersions and the docs are generated from this table."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from millpond.frontends.kafka.call import KafkaCall
from millpond.protocol import Request, Response, Versions

Q = TypeVar("Q", bound=Request)
R = TypeVar("R", bound=Response)

Serial = Callable[[KafkaCall, Q], Awaitable[Response]]
Pipelined = Callable[[KafkaCall, Q], Awaitable[Awaitable[Response | None]]]


@dataclass(frozen=True, slots=True)
class RequestHandler:
    """`begin` is awaited before the next request of the connection is read. It returns the response or, if
    `pipelined`, an awaitable of it; in that case the next request starts while this one is still in progress."""

    request: type[Request]
    begin: Callable[[KafkaCall, Any], Awaitable[Any]]
    pipelined: bool
    advertised: Versions


class Disconnect(Exception):
    """Raised instead of a response by a handler that has no other way to report an error: the connection is closed."""


HANDLERS: dict[int, RequestHandler] = {}


def handles(request: type[Q], *, advertised: Versions | None = None) -> Callable[[Serial[Q]], Serial[Q]]:
    """Register a handler that returns the response."""

    def register(function: Serial[Q]) -> Serial[Q]:
        _add(RequestHandler(request, function, pipelined=False, advertised=advertised or request.versions))
        return function

    return register


def handles_pipelined(
    request: type[Q], *, advertised: Versions | None = None
) -> Callable[[Pipelined[Q]], Pipelined[Q]]:
    """Register a handler in two steps: the part that must run in request order, and the awaitable of the response."""

    def register(function: Pipelined[Q]) -> Pipelined[Q]:
        _add(RequestHandler(request, function, pipelined=True, advertised=advertised or request.versions))
        return function

    return register


def _add(handler: RequestHandler) -> None:
    key = handler.request.api_key
    assert key not in HANDLERS, f"two handlers for key {key}"
    HANDLERS[key] = handler
