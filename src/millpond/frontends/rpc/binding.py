"""Binds a service of the schema and the object that implements it to gRPC handlers.

The object must have a method for each method of the service, named in snake case, which declares the rights that it
needs. Here they are checked before it is called, and for every request of a stream. Errors become gRPC statuses; an
unexpected error is logged and returned as INTERNAL, without its text. Requests are decoded here as well: gRPC would
respond to malformed requests with UNKNOWN and log a traceback for each.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError

from millpond.frontends.rpc.context import Context, GrpcContext
from millpond.frontends.rpc.errors import snake_case
from millpond.frontends.rpc.guarding import CallGuards, CheckedRequests, rule_of
from millpond.frontends.rpc.memory import RequestAdmission
from millpond.frontends.rpc.outcomes import CallOutcomes
from millpond.model.errors import InvalidRequest
from millpond.model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millpond.observability.metrics import AnswerMetrics
from millpond.security import OPEN_ACCESS
from millpond.security.guards import Guard
from millpond.security.requirements import Rule
from millpond.security.throttling import charge, check

DecodeRequest = Callable[[bytes], Any]
Accept = Callable[[Any, Guard | None], Any]
"""Decodes and checks a request, or wraps the requests of a stream so that each of them is decoded and checked."""


def bind(
    service: ServiceDescriptor,
    servicer: object,
    admission: RequestAdmission,
    metrics: AnswerMetrics,
    guards: CallGuards,
    *,
    retry_after_ms: int,
) -> grpc.GenericRpcHandler:
    handlers = {
        method.name: _handler(
            method, servicer, admission, guards, CallOutcomes(method.full_name, metrics, retry_after_ms)
        )
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _handler(
    method: MethodDescriptor,
    servicer: object,
    admission: RequestAdmission,
    guards: CallGuards,
    outcomes: CallOutcomes,
) -> "grpc.RpcMethodHandler[Any, Any]":
    handler = getattr(servicer, snake_case(method.name).lower())
    call = _BoundMethod(handler, rule_of(handler), guards, outcomes)
    decode = _decoder(method)
    encode = message_factory.GetMessageClass(method.output_type).SerializeToString
    if method.client_streaming and not method.server_streaming:
        collecting = _single(call, _each_watched(decode, admission, call), admission, size_of=lambda _: 0)
        return grpc.stream_unary_rpc_method_handler(collecting, None, encode)
    if method.client_streaming:
        respond = _streaming(call, _each_accepted(decode, admission, call), admission)
        return grpc.stream_stream_rpc_method_handler(respond, None, encode)
    if method.server_streaming:
        # A separate `RequestAdmission`, because shutdown does not wait for these calls.
        following = _streaming(call, _accepted(decode), RequestAdmission(0))
        return grpc.unary_stream_rpc_method_handler(following, None, encode)
    return grpc.unary_unary_rpc_method_handler(_single(call, _accepted(decode), admission), None, encode)


class _BoundMethod(NamedTuple):
    """What a call of one method needs."""

    handler: Callable[[Any, Context], Any]
    rule: Rule
    guards: CallGuards
    outcomes: CallOutcomes


def _decoder(method: MethodDescriptor) -> DecodeRequest:
    kind = message_factory.GetMessageClass(method.input_type)

    def decode(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            raise InvalidRequest(reason=f"the bytes are no {method.input_type.full_name}") from error

    return decode


def _accepted(decode: DecodeRequest) -> Accept:
    def accept(data: bytes, guard: Guard | None) -> Any:
        request = decode(data)
        if guard is not None:
            guard.require(request)
        return request

    return accept


def _each_accepted(decode: DecodeRequest, admission: RequestAdmission, call: "_BoundMethod") -> Accept:
    def accept(requests: AsyncIterator[bytes], guard: Guard | None) -> AsyncIterator[Any]:
        if guard is None:
            return _each(decode, requests, admission)
        if call.rule.counts == PRODUCER_BYTE_RATE:
            requests = call.guards.pacer.paced(requests, guard.access, PRODUCER_BYTE_RATE)
        return CheckedRequests(_each(decode, requests, admission), guard)

    return accept


def _each_watched(decode: DecodeRequest, admission: RequestAdmission, call: "_BoundMethod") -> Accept:
    """Also interrupts the wait for the next request when the client loses its rights."""
    accept_each = _each_accepted(decode, admission, call)

    def accept(requests: AsyncIterator[bytes], guard: Guard | None) -> AsyncIterator[Any]:
        accepted: AsyncIterator[Any] = accept_each(requests, guard)
        return accepted if guard is None else call.guards.streams.while_allowed(accepted, guard)

    return accept


async def _each(
    decode: DecodeRequest, requests: AsyncIterator[bytes], admission: RequestAdmission
) -> AsyncIterator[Any]:
    async for data in requests:
        with admission.admitted(len(data)):
            yield decode(data)


def _single(
    call: _BoundMethod, accept: Accept, admission: RequestAdmission, *, size_of: Callable[[Any], int] = len
) -> Callable[[Any, GrpcContext], Awaitable[Any]]:
    async def respond(given: Any, context: GrpcContext) -> Any:
        began = time.perf_counter()
        try:
            with admission.call():
                guard = await call.guards.guard(context, call.rule)
                with admission.admitted(
                    size_of(given)
                ):  # after the proof, so that only clients with one use memory
                    request = accept(given, guard)
                    if guard is not None:
                        _count_request(guard, call.rule, size_of(given))
                    response = await call.handler(request, _context(call, guard, context))
                    if guard is not None:
                        _count_response(guard, call.rule, response)
                if guard is not None and call.rule.waits:
                    guard.check()
            call.outcomes.responded(time.perf_counter() - began)
            return response
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # every error must reach the client as a status
            await call.outcomes.refuse(context, error)

    return respond


def _streaming(
    call: _BoundMethod, accept: Accept, admission: RequestAdmission
) -> Callable[[Any, GrpcContext], AsyncIterator[Any]]:
    async def respond(given: Any, context: GrpcContext) -> AsyncIterator[Any]:
        try:
            with admission.call():
                guard = await call.guards.guard(context, call.rule)
                responses = call.handler(accept(given, guard), _context(call, guard, context))
                if guard is not None and call.rule.counts == CONSUMER_BYTE_RATE:
                    await call.guards.pacer.until_allowed(guard.access, CONSUMER_BYTE_RATE)
                if guard is not None:
                    responses = call.guards.streams.while_allowed(responses, guard)
                async for each in responses:
                    yield each
            call.outcomes.done()
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # every error must reach the client as a status
            await call.outcomes.refuse(context, error)

    return respond


def _count_request(guard: Guard, rule: Rule, size: int) -> None:
    """Raises `QuotaExceeded` while an earlier request is beyond the quota."""
    if rule.counts is not None and guard.access.quotas.is_active:
        check(guard.access, rule.counts)
        if rule.counts == PRODUCER_BYTE_RATE:
            charge(guard.access, rule.counts, size)


def _count_response(guard: Guard, rule: Rule, response: Any) -> None:
    if rule.counts == CONSUMER_BYTE_RATE and guard.access.quotas.is_active:
        charge(guard.access, rule.counts, response.ByteSize())


def _context(call: _BoundMethod, guard: Guard | None, context: GrpcContext) -> Context:
    return Context(OPEN_ACCESS if guard is None else guard.access, context, call.guards.pacer)
