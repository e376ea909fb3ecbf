"""Transfers one body to or from a signed URL, with the standard library. It blocks, so it is called on a thread.

A failed transfer may succeed with a new URL, so the error is `StoreUnavailable`, which is retried. A signed
URL is a secret as long as it is valid: no error message shows more of it than its host.
"""

import http.client
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import SplitResult, urlsplit

from millpond.model.errors import InvalidRequest, StoreUnavailable
from millpond.records import Buffer

STORED: Final = (200, 201, 204)
EXISTS: Final = 412
MISSING: Final = 404
BINARY: Final = {"Content-Type": "application/octet-stream"}


def put(url: str, headers: Mapping[str, str], body: Buffer, timeout_s: float) -> int:
    """Returns one of `STORED`, or `EXISTS` if the headers forbid replacing and the object exists."""
    url_parts = urlsplit(url)
    with _Exchange(url_parts, timeout_s) as exchange:
        sent = {**BINARY, **headers, "Content-Length": str(len(body))}
        response = exchange.request("PUT", sent, body)
        response.read()
        if response.status in STORED or response.status == EXISTS:
            return response.status
        raise _refused(url_parts, response)


def get(url: str, headers: Mapping[str, str], size: int, timeout_s: float) -> bytes | None:
    """The body, cut to `size` + 1 bytes; None if it does not exist."""
    url_parts = urlsplit(url)
    with _Exchange(url_parts, timeout_s) as exchange:
        response = exchange.request("GET", headers, None)
        if response.status == MISSING:
            return None
        if response.status not in STORED:
            raise _refused(url_parts, response)
        body = response.read(size + 1)
        if len(body) <= size and response.length:
            raise StoreUnavailable(
                reason=f"{url_parts.hostname} closed the connection after {len(body)} bytes"
            )
        return body


class _Exchange:
    """One connection for one request. All its failures are the same error for callers."""

    def __init__(self, url_parts: SplitResult, timeout_s: float) -> None:
        if url_parts.scheme not in ("http", "https") or not url_parts.hostname:
            raise InvalidRequest(reason="the URL of a payload is not an HTTP URL")
        kind = http.client.HTTPSConnection if url_parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url_parts.hostname, url_parts.port, timeout=timeout_s)
        self._url = url_parts
        self._response: http.client.HTTPResponse | None = None

    def request(
        self, method: str, headers: Mapping[str, str], body: Buffer | None
    ) -> http.client.HTTPResponse:
        target = f"{self._url.path}?{self._url.query}"
        self._connection.request(
            method, target, memoryview(body) if body is not None else None, dict(headers)
        )
        self._response = self._connection.getresponse()
        return self._response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connection.close()
        if self._response is not None:
            self._response.close()  # a response that is not fully read keeps the socket open
        if isinstance(error, OSError | http.client.HTTPException):
            reason = f"{self._url.hostname} did not respond as expected: {error or type(error).__name__}"
            raise StoreUnavailable(reason=reason) from error


def _refused(url_parts: SplitResult, response: http.client.HTTPResponse) -> StoreUnavailable:
    return StoreUnavailable(reason=f"{url_parts.hostname} responded with {response.status} {response.reason}")
