"""Translates gRPC's errors into the errors that the application catches (`millpond.errors`)."""

from collections.abc import Mapping
from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from millpond.model import errors
from millpond.model.errors import MillpondError
from millpond.stubs import log_pb2

DETAILS_KEY: Final = "grpc-status-details-bin"
BY_REASON: Final[Mapping[str, type[MillpondError]]] = {
    "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in kind.__name__).lstrip(
        "_"
    ): kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MillpondError)
}
BY_CODE: Final[Mapping[grpc.StatusCode, type[MillpondError]]] = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.Overloaded,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidInput,
    grpc.StatusCode.UNIMPLEMENTED: errors.InvalidRequest,
    grpc.StatusCode.UNAUTHENTICATED: errors.AuthenticationFailed,
    grpc.StatusCode.PERMISSION_DENIED: errors.NotAuthorized,
}
BROKEN: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
"""Status codes of a broken connection. A broker's own errors carry details."""
REDIRECT: Final = "owner_grpc"
TLS_FAILURES: Final = {
    "WRONG_VERSION_NUMBER": "it does not use TLS",
    "Hostname Verification Check failed": "its certificate is for another host name",
    "certificate has expired": "its certificate has expired",
    "handshake failed": "its certificate was not signed by an authority that this client trusts",
}
"""What gRPC says of a failed connection, and what it means. The first one that is found counts."""
CLOSED_AT_ONCE: Final = ("failed to connect", "Socket closed")
"""What gRPC says if a broker closes a new connection."""


def error_of(call: grpc.aio.AioRpcError, address: str, timeout_ms: int) -> MillpondError:
    """The broker's own error if the call carries one, else the error that matches the status code."""
    for key, value in call.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            return _from_status(value)
    message = call.details() or call.code().name
    if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.TimedOut(f"{address} did not respond in time.", timeout_ms=timeout_ms)
    if call.code() in BROKEN:
        return _unreachable(address, message)
    kind = BY_CODE.get(call.code(), MillpondError)
    return kind(f"{message}.".replace("..", "."))


def _unreachable(address: str, message: str) -> errors.Unreachable:
    for found, reason in TLS_FAILURES.items():
        if found in message:
            text = f"The TLS handshake with {address} failed: {reason}."
            return errors.Unreachable(text, address=address, reason=reason)
    if all(part in message for part in CLOSED_AT_ONCE):
        message += " (does it need TLS, or a client's certificate?)"
    return errors.Unreachable(address=address, reason=message)


def error_of_result(error: log_pb2.Error) -> MillpondError:
    return _build(error.reason, error.message, dict(error.facts))


def redirect_of(error: MillpondError) -> str | None:
    """The address of the owner, if the broker redirects the request to it."""
    owner = error.facts.get(REDIRECT)
    return owner if isinstance(error, errors.NotOwner | errors.NotCoordinator) and owner else None


def retry_delay_s(error: MillpondError) -> float:
    """How long a broker wants its client to wait; 0 if it does not say."""
    is_throttled = isinstance(error, errors.QuotaExceeded)
    return int(error.facts.get("retry_after_ms", 0)) / 1000 if is_throttled else 0.0


def _from_status(packed: bytes) -> MillpondError:
    status = status_pb2.Status.FromString(packed)
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info):
            return _build(info.reason, status.message, dict(info.metadata))
    return MillpondError(status.message)


def _build(reason: str, message: str, facts: Mapping[str, str]) -> MillpondError:
    return BY_REASON.get(reason, MillpondError)(message, **facts)
