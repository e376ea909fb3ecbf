"""Routes a request to its handler: finds the operation, checks the parameters, and translates errors."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.datastructures import Headers
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from millpond.frontends.web import handlers  # noqa: F401  # handlers register themselves
from millpond.frontends.web.convert import convert_parameters
from millpond.frontends.web.cookies import SESSION, values_of
from millpond.frontends.web.errors import HttpError, elsewhere_of, owner_of, problem_of, refusal_of
from millpond.frontends.web.forgery import REQUEST_HEADER, check_form_token, check_origin, needs_form_token
from millpond.frontends.web.guarding import NamingParts, guard_of, guarded_result
from millpond.frontends.web.operations import (
    NO_BODY,
    OPERATIONS,
    HandlerResult,
    HttpCall,
    Operation,
    RawResponse,
    StreamedResponse,
)
from millpond.frontends.web.request_memory import ClientGone, RequestAllocation, RequestMemory, chunks_of
from millpond.frontends.web.site import Site, cancel_on_disconnect
from millpond.model.errors import InvalidRequest, MillpondError
from millpond.model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millpond.security import OPEN_ACCESS, Access, throttling
from millpond.security.guards import Guard
from millpond.security.requirements import AUTHENTICATED

QUERY_FIELDS_MAX = 100
UNAUTHORIZED = 401
CHALLENGE = (b"www-authenticate", b'Basic realm="millpond", Bearer')
PAGE_CHALLENGE = (b"www-authenticate", b'Bearer realm="millpond"')
NONE = "none"
"""Metric label of a request that matches no operation."""
encode = msgspec.json.Encoder().encode


class Application:
    """The ASGI application."""

    def __init__(self, site: Site) -> None:
        self.request_memory = RequestMemory(site.limits)
        paths: dict[str, list[Operation]] = {}
        for each in OPERATIONS:
            paths.setdefault(each.path, []).append(each)
        longest_first = sorted(paths, key=lambda path: -path.count("/"))  # most requests match these
        routes = [Route(path, _Path(site, self.request_memory, paths[path])) for path in longest_first]
        self._router = Router(routes, redirect_slashes=False, default=_Path(site, self.request_memory, []))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("ascii")  # undecoded: `%2F` is part of a name
        await self._router(scope, receive, send)


class _Path:
    """The operations of one path, by method."""

    def __init__(self, site: Site, request_memory: RequestMemory, operations: Sequence[Operation]) -> None:
        self._site = site
        self._request_memory = request_memory
        self._operations = {each.method: each for each in operations}
        reading = self._operations.get("GET")
        if reading is not None and not reading.streams:
            self._operations["HEAD"] = reading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with (
            self._request_memory.allocate() as allocation,
            contextlib.suppress(ClientGone, asyncio.CancelledError),
        ):
            began = time.perf_counter()
            try:
                result = await self._result(scope, receive, allocation)
            except ClientGone:
                return
            except Exception as error:  # noqa: BLE001  # every error must reach the client as a response
                result = self._error_response(error, scope)
            self._count(scope["method"], result, time.perf_counter() - began)
            await self._send(result, scope["method"], receive, send)

    async def _result(self, scope: Scope, receive: Receive, allocation: RequestAllocation) -> HandlerResult:
        headers = Headers(raw=scope["headers"])
        self._site.hosts.check(headers.getlist("host"))
        found = self._operations.get(scope["method"])
        rule = AUTHENTICATED if found is None else found.rule
        guard = await guard_of(self._site, scope, headers, rule)
        operation = self._operation(scope["method"])
        check_origin(scope["method"], headers)
        session_id = "" if guard is None else guard.access.identity.session
        is_form = needs_form_token(operation, headers, session_id)
        path = convert_parameters(_path_of(scope), operation.parameters, "path")
        if guard is not None:
            guard.require(NamingParts(path), operation.requirements(of_body=False))
        access = OPEN_ACCESS if guard is None else guard.access
        if rule.counts is not None:
            throttling.check(access, rule.counts)
        call = HttpCall(
            site=self._site,
            access=access,
            path=path,
            query=convert_parameters(_query_of(scope), operation.query, "query"),
            body=await self._body(operation, headers, receive, allocation, guard, access),
            headers=headers,
            receive=receive,
            scope=scope,
        )
        if is_form:
            check_form_token(self._site, session_id, call.body)
        if guard is not None:
            guard.require(NamingParts(path, call.body), operation.requirements(of_body=True))
        result = await operation.handler(call)
        if rule.counts == CONSUMER_BYTE_RATE:
            result = self._counted(result, access)
        if guard is not None:
            result = guarded_result(result, self._site, guard, rule)
        if isinstance(result, RawResponse):
            allocation.reserve(len(result.content))
        return result

    def _operation(self, method: str) -> Operation:
        if not self._operations:
            raise HttpError(404, "UnknownPath", "This path does not exist.")
        if method not in self._operations:
            allowed = ", ".join(sorted(self._operations))
            raise HttpError(
                405,
                "MethodNotAllowed",
                f"This path supports only {allowed}.",
                headers=[("allow", allowed)],
            )
        return self._operations[method]

    async def _body(
        self,
        operation: Operation,
        headers: Headers,
        receive: Receive,
        allocation: RequestAllocation,
        guard: Guard | None,
        access: Access,
    ) -> Any:
        body = operation.body
        counts = operation.rule.counts == PRODUCER_BYTE_RATE and access.quotas.is_active
        if body is NO_BODY:
            return None
        content_type = body.content_type_of(headers)
        if body.streamed:
            chunks = chunks_of(receive)
            if counts:
                chunks = self._site.pacer.paced(chunks, access, PRODUCER_BYTE_RATE)
            return chunks if guard is None else self._site.guards.while_allowed(chunks, guard)
        decode = body.decode
        assert decode is not None, "a body is streamed or decoded"
        bytes_max = body.bytes_max(content_type, self._site.limits)
        announced = headers.get("content-length")
        content = await allocation.read(receive, None if announced is None else int(announced), bytes_max)
        if counts:
            throttling.charge(access, PRODUCER_BYTE_RATE, len(content))
        return await self._site.run_off_loop_if_large(
            len(content), lambda: decode(self._site, content_type, headers, content)
        )

    def _counted(self, result: HandlerResult, access: Access) -> HandlerResult:
        """The response, counted for the quota of its client. A stream is counted while it is sent."""
        if not access.quotas.is_active:
            return result
        if isinstance(result, StreamedResponse):
            return replace(result, chunks=self._site.pacer.paced(result.chunks, access, CONSUMER_BYTE_RATE))
        if isinstance(result, RawResponse):
            throttling.charge(access, CONSUMER_BYTE_RATE, len(result.content))
        return result

    def _error_response(self, error: Exception, scope: Scope) -> RawResponse:
        refusal = refusal_of(error, what=f"{scope['method']} {scope['path'][:200]}")
        headers = [(name.encode(), value.encode()) for name, value in refusal.headers]
        status = refusal.status
        if (owner := owner_of(error)) is not None:
            if self._has_session(scope):
                return self._error_response(elsewhere_of(refusal, f"{self._site.scheme}://{owner}"), scope)
            status = 307
            headers.append((b"location", _owner_url(self._site.scheme, owner, scope)))
        if status == UNAUTHORIZED:
            headers.append(_challenge(scope))
        if refusal.retriable:
            headers.append((b"retry-after", b"%d" % _retry_after_s(refusal, self._site.limits.retry_after_s)))
        return RawResponse(encode(problem_of(refusal)), headers=headers, status=status)

    def _has_session(self, scope: Scope) -> bool:
        """Whether a request that was authenticated is one of a browser with a session."""
        sessions = values_of(Headers(raw=scope["headers"]), SESSION, secure=self._site.is_secure)
        return self._site.services.gate.enabled and bool(sessions)

    def _count(self, method: str, result: HandlerResult, seconds: float) -> None:
        operation = self._operations.get(method)
        status = result.status if isinstance(result, RawResponse) else 204 if result is None else 200
        name = operation.name if operation is not None else NONE
        self._site.services.metrics.answered(name, str(status))
        self._site.services.metrics.took(name, seconds)

    async def _send(self, result: HandlerResult, method: str, receive: Receive, send: Send) -> None:
        if isinstance(result, StreamedResponse):
            await _send_stream(result, method, receive, send)
        elif isinstance(result, RawResponse):
            await _send_raw(result, send, self._site.limits.answer_piece_bytes)
        elif result is None:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
        else:
            await _send_raw(RawResponse(encode(result)), send, self._site.limits.answer_piece_bytes)


async def _send_raw(result: RawResponse, send: Send, piece_bytes: int) -> None:
    headers = [
        (b"content-type", result.media_type.encode()),
        (b"content-length", b"%d" % len(result.content)),
        *result.headers,
    ]
    if result.status == 204:
        headers = list(result.headers)
    await send({"type": "http.response.start", "status": result.status, "headers": headers})
    rest = memoryview(result.content)
    while len(rest) > piece_bytes:
        await send({"type": "http.response.body", "body": rest[:piece_bytes], "more_body": True})
        rest = rest[piece_bytes:]
    await send({"type": "http.response.body", "body": rest})


async def _send_stream(result: StreamedResponse, method: str, receive: Receive, send: Send) -> None:
    headers = [
        (b"content-type", result.media_type.encode()),
        (b"cache-control", b"no-store"),
        *result.headers,
    ]
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if method == "HEAD":
            await send({"type": "http.response.body"})
        else:
            await cancel_on_disconnect(receive, _pump(result, send))
    finally:
        result.release()


async def _pump(result: StreamedResponse, send: Send) -> None:
    async with contextlib.aclosing(result.chunks) as chunks:
        try:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await asyncio.sleep(
                    0
                )  # sending to a writable socket never yields to the event loop by itself
        except MillpondError as error:
            if result.failure is None:
                raise ClientGone from error
            await send({"type": "http.response.body", "body": result.failure(error), "more_body": True})
    await send({"type": "http.response.body"})


def _path_of(scope: Scope) -> dict[str, str]:
    try:
        return {name: unquote(text, errors="strict") for name, text in scope["path_params"].items()}
    except UnicodeDecodeError as error:
        raise InvalidRequest(reason="the path is not UTF-8") from error


def _query_of(scope: Scope) -> dict[str, str]:
    if not scope["query_string"]:
        return {}
    try:
        pairs = parse_qsl(
            scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            max_num_fields=QUERY_FIELDS_MAX,
            errors="strict",
        )
    except ValueError as error:
        raise InvalidRequest(reason="the query cannot be read") from error
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidRequest(reason="the query has the same name twice")
    return found


def _challenge(scope: Scope) -> tuple[bytes, bytes]:
    """A page gets none for `Basic`: its browser would ask the user for a password by itself."""
    names = [name for name, _ in scope["headers"]]
    is_page = b"cookie" in names or REQUEST_HEADER.encode() in names or scope["path"].startswith("/session")
    return PAGE_CHALLENGE if is_page else CHALLENGE


def _retry_after_s(refusal: HttpError, default_s: int) -> int:
    """Whole seconds, rounded up. The error may say when to try again."""
    delay_ms = refusal.details.get("retry_after_ms")
    return -(-delay_ms // 1000) if isinstance(delay_ms, int) else default_s


def _owner_url(scheme: str, owner: str, scope: Scope) -> bytes:
    """The URL of the same path on the owner."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return f"{scheme}://{owner}".encode() + path + (b"?" + query if query else b"")
