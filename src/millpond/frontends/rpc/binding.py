"""Binds a service of the schema and the object that implements it to gRPC handlers.

The object must have a method for each method of the service, named in snake case. Only this module turns
errors into gRPC statuses. An unexpected error is logged and returned as INTERNAL, without its text. Requests
are decoded here as well: gRPC would respond to malformed requests with UNKNOWN and log a traceback for each.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError

from millpond.frontends.rpc.errors import DETAILS_KEY, refusal_of, snake_case, status_of
from millpond.frontends.rpc.memory import Context, RequestAdmission
from millpond.model.errors import Defect, InvalidRequest, MillpondError
from millpond.observability.metrics import AnswerMetrics

DecodeRequest = Callable[[bytes], Any]
OK: Final = grpc.StatusCode.OK.name
logger = logging.getLogger(__name__)


def bind(
    service: ServiceDescriptor,
    servicer: object,
    admission: RequestAdmission,
    metrics: AnswerMetrics,
    *,
    retry_after_ms: int,
) -> grpc.GenericRpcHandler:
    handlers = {
        method.name: _handler(
            method, servicer, admission, _Outcomes(method.full_name, metrics, retry_after_ms)
        )
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _handler(
    method: MethodDescriptor, servicer: object, admission: RequestAdmission, outcomes: "_Outcomes"
) -> "grpc.RpcMethodHandler[Any, Any]":
    call = getattr(servicer, snake_case(method.name).lower())
    decode = _decoder(method)
    encode = message_factory.GetMessageClass(method.output_type).SerializeToString
    if method.client_streaming and not method.server_streaming:
        collecting = _single(
            call,
            lambda requests: _each(decode, requests, admission),
            admission,
            outcomes,
            size_of=lambda _: 0,
        )
        return grpc.stream_unary_rpc_method_handler(collecting, None, encode)
    if method.client_streaming:
        respond = _streaming(call, lambda requests: _each(decode, requests, admission), admission, outcomes)
        return grpc.stream_stream_rpc_method_handler(respond, None, encode)
    if method.server_streaming:
        # A separate `RequestAdmission`, because shutdown does not wait for these calls.
        following = _streaming(call, decode, RequestAdmission(0), outcomes)
        return grpc.unary_stream_rpc_method_handler(following, None, encode)
    return grpc.unary_unary_rpc_method_handler(_single(call, decode, admission, outcomes), None, encode)


def _decoder(method: MethodDescriptor) -> DecodeRequest:
    kind = message_factory.GetMessageClass(method.input_type)

    def decode(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            raise InvalidRequest(reason=f"the bytes are no {method.input_type.full_name}") from error

    return decode


async def _each(
    decode: DecodeRequest, requests: AsyncIterator[bytes], admission: RequestAdmission
) -> AsyncIterator[Any]:
    async for data in requests:
        with admission.admitted(len(data)):
            yield decode(data)


class _Outcomes:
    """Records how the calls of one method end."""

    def __init__(self, method: str, metrics: AnswerMetrics, retry_after_ms: int) -> None:
        self._method = method
        self._metrics = metrics
        self._retry_after_ms = retry_after_ms

    def done(self) -> None:
        self._metrics.answered(self._method, OK)

    async def refuse(self, context: Context, error: Exception) -> None:
        if not isinstance(error, MillpondError):
            logger.error(
                "unexpected error in gRPC request",
                exc_info=error,
                extra={"request": self._method, "error": error},
            )
            error = Defect(reason="see the broker's log")
        refusal = refusal_of(error)
        self._metrics.answered(self._method, refusal.code.name)
        details = ((DETAILS_KEY, status_of(refusal, self._retry_after_ms)),)
        await context.abort(refusal.code, refusal.message, details)


def _single(
    call: Callable[[Any, Context], Awaitable[Any]],
    decode: Callable[[Any], Any],
    admission: RequestAdmission,
    outcomes: _Outcomes,
    *,
    size_of: Callable[[Any], int] = len,
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def respond(given: Any, context: Context) -> Any:
        try:
            with admission.call(), admission.admitted(size_of(given)):
                response = await call(decode(given), context)
            outcomes.done()
            return response
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # every error must reach the client as a status
            await outcomes.refuse(context, error)

    return respond


def _streaming(
    call: Callable[[Any, Context], AsyncIterator[Any]],
    decode: Callable[[Any], Any],
    admission: RequestAdmission,
    outcomes: _Outcomes,
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def respond(given: Any, context: Context) -> AsyncIterator[Any]:
        try:
            with admission.call():
                async for each in call(decode(given), context):
                    yield each
            outcomes.done()
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # every error must reach the client as a status
            await outcomes.refuse(context, error)

    return respond
