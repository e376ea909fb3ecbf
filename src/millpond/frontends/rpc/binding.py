"""From a service of the schema and an object with its methods to what gRPC serves.

Every method of the service must be there under its name in snake case. Errors become statuses here and nowhere
else; what nobody foresaw is logged and answered as INTERNAL, without its text. Requests are decoded here, too: left
to gRPC, bytes that are no request would be answered as UNKNOWN and logged with a traceback each.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError

from millpond.frontends.rpc.errors import DETAILS_KEY, refusal_of, status_of
from millpond.frontends.rpc.memory import Context, Intake
from millpond.model.errors import Defect, InvalidRequest, MillpondError

_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")

Decode = Callable[[bytes], Any]
logger = logging.getLogger(__name__)


def bind(
    service: ServiceDescriptor, servicer: object, intake: Intake, *, retry_after_ms: int
) -> grpc.GenericRpcHandler:
    handlers = {method.name: _handler(method, servicer, intake, retry_after_ms) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _handler(
    method: MethodDescriptor, servicer: object, intake: Intake, retry_after_ms: int
) -> "grpc.RpcMethodHandler[Any, Any]":
    call = getattr(servicer, _WORD.sub("_", method.name).lower())
    decode = _decoder(method)
    encode = message_factory.GetMessageClass(method.output_type).SerializeToString
    refuse = _Refuser(method.full_name, retry_after_ms)
    if method.client_streaming:
        answer = _streaming(call, lambda requests: _each(decode, requests, intake), refuse)
        return grpc.stream_stream_rpc_method_handler(answer, None, encode)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(_streaming(call, decode, refuse), None, encode)
    return grpc.unary_unary_rpc_method_handler(_single(call, decode, intake, refuse), None, encode)


def _decoder(method: MethodDescriptor) -> Decode:
    kind = message_factory.GetMessageClass(method.input_type)

    def decode(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError as error:
            raise InvalidRequest(reason=f"the bytes are no {method.input_type.full_name}") from error

    return decode


async def _each(decode: Decode, requests: AsyncIterator[bytes], intake: Intake) -> AsyncIterator[Any]:
    async for data in requests:
        with intake.admitted(len(data)):
            yield decode(data)


class _Refuser:
    def __init__(self, method: str, retry_after_ms: int) -> None:
        self._method = method
        self._retry_after_ms = retry_after_ms

    async def __call__(self, context: Context, error: Exception) -> None:
        if not isinstance(error, MillpondError):
            logger.error("%s failed in a way nobody foresaw", self._method, exc_info=error)
            error = Defect(reason="see the broker's log")
        refusal = refusal_of(error)
        details = ((DETAILS_KEY, status_of(refusal, self._retry_after_ms)),)
        await context.abort(refusal.code, refusal.message, details)


def _single(
    call: Callable[[Any, Context], Awaitable[Any]], decode: Decode, intake: Intake, refuse: _Refuser
) -> Callable[[bytes, Context], Awaitable[Any]]:
    async def answer(data: bytes, context: Context) -> Any:
        try:
            with intake.admitted(len(data)):
                return await call(decode(data), context)
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the client gets an answer
            await refuse(context, error)

    return answer


def _streaming(
    call: Callable[[Any, Context], AsyncIterator[Any]], decode: Callable[[Any], Any], refuse: _Refuser
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def answer(given: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for each in call(decode(given), context):
                yield each
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the client gets an answer
            await refuse(context, error)

    return answer
