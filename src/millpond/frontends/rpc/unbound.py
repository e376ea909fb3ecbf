"""Handlers outside of the services of the schema: reflection, and methods that do not exist.

Only clients that have authenticated may use reflection, or find out which methods exist. The health service, which
every client may call, needs no handler here.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from millpond.frontends.rpc.context import GrpcContext
from millpond.frontends.rpc.guarding import CallGuards
from millpond.frontends.rpc.outcomes import CallOutcomes
from millpond.model.errors import MillpondError
from millpond.security.requirements import AUTHENTICATED

UNKNOWN_METHOD: Final = "unknown"


class GuardedReflection(reflection.aio.ReflectionServicer):  # type: ignore[misc]  # untyped
    """Describes the services to clients that have authenticated."""

    def __init__(self, services: Iterable[str], guards: CallGuards, outcomes: CallOutcomes) -> None:
        super().__init__(services)
        self._guards = guards
        self._outcomes = outcomes

    async def ServerReflectionInfo(  # noqa: N802  # the method of the schema
        self, requests: AsyncIterator[reflection_pb2.ServerReflectionRequest], context: GrpcContext
    ) -> AsyncIterator[reflection_pb2.ServerReflectionResponse]:
        try:
            guard = await self._guards.guard(context, AUTHENTICATED)
            responses = super().ServerReflectionInfo(requests, context)
            if guard is not None:
                responses = self._guards.streams.while_allowed(responses, guard)
            async for response in responses:
                yield response
        except MillpondError as error:
            await self._outcomes.refuse(context, error)

    def add_to(self, server: grpc.aio.Server) -> None:
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(self, server)


class UnknownMethods(grpc.GenericRpcHandler):
    """Handles every method, so it is added last. UNIMPLEMENTED is only for clients that have authenticated."""

    def __init__(self, guards: CallGuards, outcomes: CallOutcomes) -> None:
        self._guards = guards
        self._outcomes = outcomes

    def service(self, _: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any]":
        return grpc.stream_unary_rpc_method_handler(self._respond)

    async def _respond(self, _: AsyncIterator[bytes], context: GrpcContext) -> bytes:
        try:
            await self._guards.guard(context, AUTHENTICATED)
        except MillpondError as error:
            await self._outcomes.refuse(context, error)
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
