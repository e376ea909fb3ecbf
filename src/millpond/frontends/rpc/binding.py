"""From a service of the schema and an object with its methods to what gRPC serves.

Every method of the service must be there under its name in snake case. Errors become statuses here and nowhere
else; what nobody foresaw is logged and answered as INTERNAL, without its text.
"""

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from millpond.frontends.rpc.errors import DETAILS_KEY, refusal_of, status_of
from millpond.model.errors import Defect, MillpondError

_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
MESSAGE_CHARS_MAX: Final = 1_000
"""Of a status message: it travels in a header."""

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Translate = Callable[[MillpondError], MillpondError]
logger = logging.getLogger(__name__)


def bind(service: ServiceDescriptor, servicer: object, *, retry_after_ms: int) -> grpc.GenericRpcHandler:
    handlers = {method.name: _handler(method, servicer, retry_after_ms) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _handler(
    method: MethodDescriptor, servicer: object, retry_after_ms: int
) -> "grpc.RpcMethodHandler[Any, Any]":
    call = getattr(servicer, _WORD.sub("_", method.name).lower())
    request = message_factory.GetMessageClass(method.input_type)
    response = message_factory.GetMessageClass(method.output_type)
    refuse = _Refuser(method.full_name, retry_after_ms)
    if method.server_streaming:
        make = (
            grpc.stream_stream_rpc_method_handler
            if method.client_streaming
            else grpc.unary_stream_rpc_method_handler
        )
        return make(_streaming(call, refuse), request.FromString, response.SerializeToString)
    return grpc.unary_unary_rpc_method_handler(
        _single(call, refuse), request.FromString, response.SerializeToString
    )


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
        await context.abort(refusal.code, refusal.message[:MESSAGE_CHARS_MAX], details)


def _single(
    call: Callable[[Any, Context], Awaitable[Any]], refuse: _Refuser
) -> Callable[[Any, Context], Awaitable[Any]]:
    async def answer(request: Any, context: Context) -> Any:
        try:
            return await call(request, context)
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the client gets an answer
            await refuse(context, error)

    return answer


def _streaming(
    call: Callable[[Any, Context], AsyncIterator[Any]], refuse: _Refuser
) -> Callable[[Any, Context], AsyncIterator[Any]]:
    async def answer(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for each in call(request, context):
                yield each
        except (grpc.aio.AbortError, grpc.aio.UsageError):
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the client gets an answer
            await refuse(context, error)

    return answer
