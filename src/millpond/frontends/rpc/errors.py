"""Maps Millpond's errors to gRPC statuses; no other module of the gRPC interface does.

The status details are google.rpc messages, which every language can read: ErrorInfo with a stable reason and
the facts, and RetryInfo if a retry may succeed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from millpond.model import errors
from millpond.model.errors import MillpondError
from millpond.stubs import log_pb2

DOMAIN: Final = "millpond"
DETAILS_KEY: Final = "grpc-status-details-bin"
RETRY_AFTER_KEY: Final = "retry-after-ms"
RETRY_AFTER: Final = "retry_after_ms"
"""The fact of an error that says when to try again."""
FACT_BYTES_MAX: Final = 500
MESSAGE_BYTES_MAX: Final = 1_000
"""The message is sent twice, once percent-encoded with three characters per byte, and 8 KiB of metadata is
what all clients accept."""
_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

Code = grpc.StatusCode
CODES: Final[Mapping[type[MillpondError], grpc.StatusCode]] = {
    MillpondError: Code.INTERNAL,
    errors.InvalidInput: Code.INVALID_ARGUMENT,
    errors.AuthenticationFailed: Code.UNAUTHENTICATED,
    errors.NotAuthorized: Code.PERMISSION_DENIED,
    errors.NotFound: Code.NOT_FOUND,
    errors.ObjectMissing: Code.DATA_LOSS,
    errors.Conflict: Code.FAILED_PRECONDITION,
    errors.StorageQuotaExceeded: Code.RESOURCE_EXHAUSTED,
    errors.TopicExists: Code.ALREADY_EXISTS,
    errors.PayloadExists: Code.ALREADY_EXISTS,
    errors.SubscriptionExists: Code.ALREADY_EXISTS,
    errors.SubscriptionReplaced: Code.ABORTED,
    errors.ObjectExists: Code.ABORTED,
    errors.ExtentsChanged: Code.ABORTED,
    errors.OffsetOutOfRange: Code.OUT_OF_RANGE,
    errors.NotCoordinator: Code.UNAVAILABLE,
    errors.UnstableOffsets: Code.UNAVAILABLE,
    errors.Fenced: Code.FAILED_PRECONDITION,
    errors.WriterDead: Code.UNAVAILABLE,
    errors.Unavailable: Code.UNAVAILABLE,
    errors.Overloaded: Code.RESOURCE_EXHAUSTED,
    errors.QuotaExceeded: Code.RESOURCE_EXHAUSTED,
    errors.Damaged: Code.DATA_LOSS,
    errors.Defect: Code.INTERNAL,
    errors.CannotStart: Code.INTERNAL,
}


@dataclass(frozen=True, slots=True)
class RpcRefusal:
    """An error as clients receive it."""

    code: grpc.StatusCode
    reason: str
    message: str
    retriable: bool
    facts: Mapping[str, str]
    delay_ms: int | None = None
    """When to try again, if the error says it itself."""

    def retry_after_ms(self, default_ms: int) -> int:
        return default_ms if self.delay_ms is None else self.delay_ms


def refusal_of(error: MillpondError) -> RpcRefusal:
    error = _with_message_numbers(error)
    message = _bounded(str(error), MESSAGE_BYTES_MAX)
    delay_ms = error.facts.get(RETRY_AFTER)
    return RpcRefusal(
        *(code_of(error), reason_of(error), message, error.retriable, _facts(error)),
        delay_ms=delay_ms if isinstance(delay_ms, int) else None,
    )


def _with_message_numbers(error: MillpondError) -> MillpondError:
    """The gRPC interface uses message numbers, which are offsets plus one."""
    if not isinstance(error, errors.OffsetOutOfRange) or not error.facts:
        return error
    read_from, oldest, following = (error.facts[fact] + 1 for fact in ("offset", "log_start", "end_offset"))
    message = f"Message {read_from} is outside the retained range {oldest} to {following}."
    return errors.OffsetOutOfRange(message, read_from=read_from, oldest=oldest, next=following)


def code_of(error: MillpondError) -> grpc.StatusCode:
    """The code of the error's class, or of its nearest ancestor that has one."""
    return next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)


def reason_of(error: MillpondError) -> str:
    """The error's name in the form that google.rpc.ErrorInfo requires: UNKNOWN_TOPIC."""
    return snake_case(type(error).__name__).upper()


def snake_case(name: str) -> str:
    """Converts `UnknownTopic` to `Unknown_Topic`."""
    return _WORD.sub("_", name)


def number_of(code: grpc.StatusCode) -> int:
    number: int = code.value[0]
    return number


def status_of(refusal: RpcRefusal, retry_after_ms: int) -> bytes:
    """A google.rpc.Status for the trailing metadata."""
    info = error_details_pb2.ErrorInfo(reason=refusal.reason, domain=DOMAIN, metadata=refusal.facts)
    details = [_packed(info)]
    if refusal.retriable:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(refusal.retry_after_ms(retry_after_ms))
        details.append(_packed(error_details_pb2.RetryInfo(retry_delay=delay)))
    status = status_pb2.Status(code=number_of(refusal.code), message=refusal.message, details=details)
    packed: bytes = status.SerializeToString()
    return packed


def error_message(error: MillpondError, retry_after_ms: int) -> log_pb2.Error:
    """The error of one request of a stream; the stream continues."""
    refusal = refusal_of(error)
    return log_pb2.Error(
        code=number_of(refusal.code),
        reason=refusal.reason,
        message=refusal.message,
        retriable=refusal.retriable,
        retry_after_ms=refusal.retry_after_ms(retry_after_ms) if refusal.retriable else 0,
        facts=refusal.facts,
    )


def _packed(detail: error_details_pb2.ErrorInfo | error_details_pb2.RetryInfo) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed


def _facts(error: MillpondError) -> dict[str, str]:
    """Facts are truncated: they are sent in metadata, of which clients accept only a few kilobytes."""
    return {
        name: _bounded(text, FACT_BYTES_MAX)
        for name, fact in error.facts.items()
        if (text := str(fact)) and fact is not None
    }


def _bounded(text: str, bytes_max: int) -> str:
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")
