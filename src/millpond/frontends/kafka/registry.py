"""Which handler answers which request. A handler registers itself; ApiVersions and the docs read the same table."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from millpond.frontends.kafka.call import Call
from millpond.protocol import Request, Response, Versions

Q = TypeVar("Q", bound=Request)
R = TypeVar("R", bound=Response)

Answer = Callable[[], Awaitable[Response | None]]
Serial = Callable[[Call, Q], Awaitable[Response]]
Pipelined = Callable[[Call, Q], Awaitable[Awaitable[Response | None]]]


@dataclass(frozen=True, slots=True)
class Handler:
    """`begin` is awaited before the next request of the connection is looked at. What it returns is the response,
    or, if `pipelined`, an awaitable of it: then the next request begins while this one is still being answered."""

    request: type[Request]
    begin: Callable[[Call, Any], Awaitable[Any]]
    pipelined: bool
    advertised: Versions


class Disconnect(Exception):
    """Raised in place of an answer by a handler that has no other way to say no: the connection is closed."""


HANDLERS: dict[int, Handler] = {}


def handles(request: type[Q], *, advertised: Versions | None = None) -> Callable[[Serial[Q]], Serial[Q]]:
    """Register a handler that is done when it returns the response."""

    def register(function: Serial[Q]) -> Serial[Q]:
        _add(Handler(request, function, pipelined=False, advertised=advertised or request.versions))
        return function

    return register


def handles_pipelined(
    request: type[Q], *, advertised: Versions | None = None
) -> Callable[[Pipelined[Q]], Pipelined[Q]]:
    """Register a handler in two steps: what must happen in the order of the requests, and the answer."""

    def register(function: Pipelined[Q]) -> Pipelined[Q]:
        _add(Handler(request, function, pipelined=True, advertised=advertised or request.versions))
        return function

    return register


def _add(handler: Handler) -> None:
    key = handler.request.api_key
    assert key not in HANDLERS, f"two handlers for key {key}"
    HANDLERS[key] = handler
