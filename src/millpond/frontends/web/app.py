"""Routes a request to its handler: finds the operation, checks the parameters, and translates errors."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec
from starlette.datastructures import Headers
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from millpond.frontends.web import handlers  # noqa: F401  # handlers register themselves
from millpond.frontends.web.convert import convert_parameters
from millpond.frontends.web.errors import HttpError, owner_of, problem_of, refusal_of
from millpond.frontends.web.operations import NO_BODY, OPERATIONS, HttpCall, Operation, Raw, Reply, Stream
from millpond.frontends.web.request_memory import ClientGone, Holding, RequestMemory, chunks_of
from millpond.frontends.web.site import Site, cancel_on_disconnect
from millpond.model.errors import InvalidRequest

QUERY_FIELDS_MAX = 100
SAFE_METHODS = ("GET", "HEAD")
NONE = "none"
"""Metric label of a request that matches no operation."""
encode = msgspec.json.Encoder().encode


class Application:
    """The ASGI application."""

    def __init__(self, site: Site) -> None:
        self.bodies = RequestMemory(site.limits)
        paths: dict[str, list[Operation]] = {}
        for each in OPERATIONS:
            paths.setdefault(each.path, []).append(each)
        longest_first = sorted(paths, key=lambda path: -path.count("/"))  # most requests match these
        routes = [Route(path, _Path(site, self.bodies, paths[path])) for path in longest_first]
        self._router = Router(routes, redirect_slashes=False, default=_Path(site, self.bodies, []))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["path"] = scope["raw_path"].decode("ascii")  # undecoded: `%2F` is part of a name
        await self._router(scope, receive, send)


class _Path:
    """The operations of one path, by method."""

    def __init__(self, site: Site, bodies: RequestMemory, operations: Sequence[Operation]) -> None:
        self._site = site
        self._bodies = bodies
        self._operations = {each.method: each for each in operations}
        reading = self._operations.get("GET")
        if reading is not None and not reading.streams:
            self._operations["HEAD"] = reading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._bodies.holding() as holding, contextlib.suppress(ClientGone, asyncio.CancelledError):
            try:
                reply = await self._reply(scope, receive, holding)
            except ClientGone:
                return
            except Exception as error:  # noqa: BLE001  # every error must reach the client as a response
                reply = self._refusal(error, scope)
            self._count(scope["method"], reply)
            await self._send(reply, scope["method"], receive, send)

    async def _reply(self, scope: Scope, receive: Receive, holding: Holding) -> Reply:
        headers = Headers(raw=scope["headers"])
        self._site.hosts.check(headers.getlist("host"))
        operation = self._operation(scope["method"])
        _check_origin(scope["method"], headers)
        call = HttpCall(
            site=self._site,
            path=convert_parameters(_path_of(scope), operation.parameters, "path"),
            query=convert_parameters(_query_of(scope), operation.query, "query"),
            body=await self._body(operation, headers, receive, holding),
            headers=headers,
            receive=receive,
        )
        reply = await operation.handler(call)
        if isinstance(reply, Raw):
            holding.add(len(reply.content))
        return reply

    def _operation(self, method: str) -> Operation:
        if not self._operations:
            raise HttpError(404, "UnknownPath", "There is nothing at this path.")
        if method not in self._operations:
            allowed = ", ".join(sorted(self._operations))
            raise HttpError(
                405,
                "MethodNotAllowed",
                f"Only {allowed} can be done here.",
                headers=[("allow", allowed)],
            )
        return self._operations[method]

    async def _body(self, operation: Operation, headers: Headers, receive: Receive, holding: Holding) -> Any:
        body = operation.body
        if body is NO_BODY:
            return None
        kind = body.kind_of(headers)
        if body.streamed:
            return chunks_of(receive)
        decode = body.decode
        assert decode is not None, "a body is streamed or decoded"
        bytes_max = body.bytes_max(kind, self._site.limits)
        announced = headers.get("content-length")
        content = await holding.read(receive, None if announced is None else int(announced), bytes_max)
        return await self._site.run_off_loop_if_large(
            len(content), lambda: decode(self._site, kind, headers, content)
        )

    def _refusal(self, error: Exception, scope: Scope) -> Raw:
        refusal = refusal_of(error, what=f"{scope['method']} {scope['path'][:200]}")
        headers = [(name.encode(), value.encode()) for name, value in refusal.headers]
        status = refusal.status
        if (owner := owner_of(error)) is not None:
            status = 307
            headers.append((b"location", _owner_url(owner, scope)))
        if refusal.retriable:
            headers.append((b"retry-after", b"%d" % self._site.limits.retry_after_s))
        return Raw(encode(problem_of(refusal)), headers=headers, status=status)

    def _count(self, method: str, reply: Reply) -> None:
        operation = self._operations.get(method)
        status = reply.status if isinstance(reply, Raw) else 204 if reply is None else 200
        self._site.services.metrics.answered(operation.name if operation is not None else NONE, str(status))

    async def _send(self, reply: Reply, method: str, receive: Receive, send: Send) -> None:
        if isinstance(reply, Stream):
            await _send_stream(reply, method, receive, send)
        elif isinstance(reply, Raw):
            await _send_raw(reply, send, self._site.limits.answer_piece_bytes)
        elif reply is None:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})
        else:
            await _send_raw(Raw(encode(reply)), send, self._site.limits.answer_piece_bytes)


async def _send_raw(reply: Raw, send: Send, piece_bytes: int) -> None:
    headers = [
        (b"content-type", reply.media_type.encode()),
        (b"content-length", b"%d" % len(reply.content)),
        *reply.headers,
    ]
    if reply.status == 204:
        headers = list(reply.headers)
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    rest = memoryview(reply.content)
    while len(rest) > piece_bytes:
        await send({"type": "http.response.body", "body": rest[:piece_bytes], "more_body": True})
        rest = rest[piece_bytes:]
    await send({"type": "http.response.body", "body": rest})


async def _send_stream(reply: Stream, method: str, receive: Receive, send: Send) -> None:
    headers = [
        (b"content-type", reply.media_type.encode()),
        (b"cache-control", b"no-store"),
        *reply.headers,
    ]
    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if method == "HEAD":
            await send({"type": "http.response.body"})
        else:
            await cancel_on_disconnect(receive, _pump(reply, send))
    finally:
        reply.release()


async def _pump(reply: Stream, send: Send) -> None:
    async with contextlib.aclosing(reply.pieces) as pieces:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)  # sending to a writable socket never yields to the event loop by itself
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
        raise InvalidRequest(reason="a name is twice in the query")
    return found


def _check_origin(method: str, headers: Headers) -> None:
    """A web page from another origin must not change anything through the browser of a user who can reach
    this broker."""
    origin = headers.get("origin")
    if origin is None or method in SAFE_METHODS:
        return
    if origin.partition("://")[2] != headers.get("host"):
        raise HttpError(403, "ForeignOrigin", "Pages from elsewhere may not change anything here.")


def _owner_url(owner: str, scope: Scope) -> bytes:
    """The URL of the same path on the owner."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return b"http://" + owner.encode() + path + (b"?" + query if query else b"")
