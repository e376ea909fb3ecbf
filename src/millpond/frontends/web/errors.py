"""Maps Millpond's errors to HTTP statuses; no other module of the HTTP interface does.

The code in the body is the error's name, so that clients need not interpret statuses; the status is for proxies.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from millpond.frontends.web.schemas import ProblemJson
from millpond.model import errors
from millpond.model.errors import Defect, MillpondError, NotCoordinator, NotOwner

FACT_CHARS_MAX: Final = 500
MISDIRECTED: Final = 421
Detail = str | int | list[str]
logger = logging.getLogger(__name__)

STATUSES: Final[Mapping[type[MillpondError], int]] = {
    MillpondError: 500,
    errors.InvalidInput: 400,
    errors.RecordTooLarge: 413,
    errors.PayloadTooLarge: 413,
    errors.AuthenticationFailed: 401,
    errors.NotAuthorized: 403,
    errors.NotFound: 404,
    errors.ObjectMissing: 500,
    errors.Conflict: 409,
    errors.ObjectExists: 503,
    errors.ExtentsChanged: 503,
    errors.OffsetOutOfRange: 416,
    errors.NotCoordinator: 503,
    errors.UnstableOffsets: 503,
    errors.Fenced: 409,
    errors.NotOwner: 503,
    errors.WriterDead: 503,
    errors.Unavailable: 503,
    errors.Overloaded: 429,
    errors.QuotaExceeded: 429,
    errors.Damaged: 500,
    errors.Defect: 500,
    errors.CannotStart: 500,
}

CODES: Final[Mapping[type[MillpondError], str]] = {errors.TopicExists: "TopicAlreadyExistsException"}
"""Errors whose code differs from the error's name."""


class HttpError(Exception):
    """An error that exists only in HTTP, such as a bad content type. Never leaves the HTTP interface."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        retriable: bool = False,
        details: Mapping[str, Detail] | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retriable = retriable
        self.details = dict(details or {})
        self.headers = tuple(headers)


def refusal_of(
    error: Exception, *, what: str = "a request", headers: Sequence[tuple[bytes, bytes]] = ()
) -> HttpError:
    """Any error as clients receive it, with these headers. An unexpected error is logged, and clients do not receive
    its text."""
    if isinstance(error, HttpError):
        return error
    if not isinstance(error, MillpondError):
        logger.error(
            "unexpected error in HTTP request", exc_info=error, extra={"request": what, "error": error}
        )
        error = Defect(reason="see the broker's log")
    elif isinstance(error, Defect):
        logger.error(
            "defect found in HTTP request", exc_info=error, extra={"request": what, "error": str(error)}
        )
        error = Defect(reason="see the broker's log")
    return HttpError(
        status_of(error),
        code_of(error),
        str(error),
        retriable=error.retriable,
        details=_details(error),
        headers=[(name.decode(), value.decode()) for name, value in headers],
    )


def status_of(error: MillpondError) -> int:
    """The status of the error's class, or of its nearest ancestor that has one."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def code_of(error: MillpondError) -> str:
    return CODES.get(type(error), type(error).__name__)


def problem_of(refusal: HttpError) -> ProblemJson:
    return ProblemJson(refusal.code, str(refusal), refusal.retriable, refusal.details)


def owner_of(error: Exception) -> str | None:
    """The owner's address for a client that called the wrong broker, if it is known."""
    return error.facts.get("owner_http") if isinstance(error, NotOwner | NotCoordinator) else None


def elsewhere_of(refusal: HttpError, owner_url: str) -> HttpError:
    """For a browser with a session: its cookie is not sent to the owner, which is another origin."""
    text = f"{refusal} {owner_url} owns it. Open that address and log in there: a session is not sent to another one."
    return HttpError(MISDIRECTED, refusal.code, text, details=refusal.details)


def _details(error: MillpondError) -> dict[str, Detail]:
    """Facts are truncated, because they can contain a name that the client sent."""
    return {
        name: fact if isinstance(fact, int) else str(fact)[:FACT_CHARS_MAX]
        for name, fact in error.facts.items()
        if fact is not None
    }
