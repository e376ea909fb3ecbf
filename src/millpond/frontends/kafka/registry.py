"""Maps requests to handlers. Handlers register themselves, with the rights that a client needs; ApiVersions and the
docs are generated from this table. A handler without a declaration of its rights cannot be imported."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.rights import Right
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
    rights: tuple[Right, ...]
    """Every right that the handler asks for. Some requests need only one of them; the handler's module says which."""
    needs_none_because: str
    """Why there are no rights to ask for; empty if there are."""


class Disconnect(Exception):
    """Raised instead of a response by a handler that has no other way to report an error: the connection is closed."""


HANDLERS: dict[int, RequestHandler] = {}


def handles(
    request: type[Q],
    *,
    rights: tuple[Right, ...],
    needs_none_because: str = "",
    advertised: Versions | None = None,
) -> Callable[[Serial[Q]], Serial[Q]]:
    """Register a handler that returns the response."""

    def register(function: Serial[Q]) -> Serial[Q]:
        versions = advertised or request.versions
        _add(RequestHandler(request, function, False, versions, rights, needs_none_because))
        return function

    return register


def handles_pipelined(
    request: type[Q], *, rights: tuple[Right, ...], advertised: Versions | None = None
) -> Callable[[Pipelined[Q]], Pipelined[Q]]:
    """Register a handler in two steps: the part that must run in request order, and the awaitable of the response."""

    def register(function: Pipelined[Q]) -> Pipelined[Q]:
        versions = advertised or request.versions
        _add(RequestHandler(request, function, True, versions, rights, needs_none_because=""))
        return function

    return register


def _add(handler: RequestHandler) -> None:
    key = handler.request.api_key
    assert key not in HANDLERS, f"two handlers for key {key}"
    is_explained = bool(handler.needs_none_because)
    assert bool(handler.rights) != is_explained, f"key {key} declares rights, or why it needs none"
    HANDLERS[key] = handler
