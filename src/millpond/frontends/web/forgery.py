"""Requests that a page of another origin makes a browser send (cross-site request forgery).

A browser adds the cookie of a session by itself, so the cookie alone proves no intent. A request that changes something
and is authenticated by the cookie needs the header `X-Millpond-Request: 1`, which other origins cannot send without
being asked by CORS, or, if it is a form, a field that only our own pages know.
"""

from typing import Any, Final

from starlette.datastructures import Headers

from millpond.frontends.web.errors import HttpError
from millpond.frontends.web.operations import FORM, Operation
from millpond.frontends.web.site import Site

SAFE_METHODS: Final = ("GET", "HEAD")
REQUEST_HEADER: Final = "x-millpond-request"
TOKEN_FIELD: Final = "csrf_token"  # noqa: S105  # no secret


def check_origin(method: str, headers: Headers) -> None:
    """A web page from another origin must not change anything through the browser of a user who can reach
    this broker."""
    origin = headers.get("origin")
    if origin is None or method in SAFE_METHODS:
        return
    if origin.partition("://")[2] != headers.get("host"):
        raise HttpError(403, "ForeignOrigin", "Web pages of another origin may only read.")


def needs_form_token(operation: Operation, headers: Headers, session_id: str) -> bool:
    """Whether the body must have the session's token. Raises `HttpError` if the request can prove its origin neither
    by the header nor by a form."""
    if not session_id or operation.method in SAFE_METHODS or headers.get(REQUEST_HEADER) == "1":
        return False
    if FORM in operation.body.content_types and operation.body.content_type_of(headers) == FORM:
        return True
    raise _forged()


def check_form_token(site: Site, session_id: str, body: Any) -> None:
    if not site.services.login.is_form_token(session_id, getattr(body, TOKEN_FIELD, "")):
        raise _forged()


def _forged() -> HttpError:
    return HttpError(
        403,
        "UnprovenOrigin",
        "A change that is authenticated by a session needs the header X-Millpond-Request: 1, or a form with "
        f"{TOKEN_FIELD}.",
    )
