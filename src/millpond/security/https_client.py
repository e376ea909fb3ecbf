"""Requests to the identity provider, over https only, without redirects and proxies, with a limit of size and time."""

import http.client
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from millpond.model.clock import Clock

TIMEOUT_S: Final = 5
RESPONSE_BYTES_MAX: Final = 1 << 20


class HttpsResponse(NamedTuple):
    """`body` has at most one byte more than `RESPONSE_BYTES_MAX`."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"HttpsResponse(status={self.status})"


def is_https(url: object) -> bool:
    return isinstance(url, str) and url.startswith("https://") and bool(urlsplit(url).hostname)


def send(
    url: str,
    clock: Clock,
    *,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> HttpsResponse:
    """GET an https URL, or POST a form to it. A redirect is a response like others, and is not followed. Raises
    OSError, ValueError and `http.client.HTTPException`."""
    parts = urlsplit(url)
    context = context or ssl.create_default_context()
    connection = http.client.HTTPSConnection(
        str(parts.hostname), parts.port, timeout=TIMEOUT_S, context=context
    )
    sent = {"Accept": "application/json", **(headers or {})}
    if form is not None:
        sent["Content-Type"] = "application/x-www-form-urlencoded"
    try:
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        connection.request("GET" if form is None else "POST", path, body=form, headers=sent)
        response = connection.getresponse()
        return HttpsResponse(response.status, _body(response, clock))
    finally:
        connection.close()


def _body(response: http.client.HTTPResponse, clock: Clock) -> bytes:
    body, deadline_ms = b"", clock.monotonic_ms() + 1000 * TIMEOUT_S
    while len(body) <= RESPONSE_BYTES_MAX and (piece := response.read1(1 << 16)):
        body += piece
        if clock.monotonic_ms() > deadline_ms:
            raise TimeoutError(f"the server did not send its response within {TIMEOUT_S} s")
    return body
