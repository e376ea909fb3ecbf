"""What a method of a service knows about its call, besides the request."""

from collections.abc import Callable
from typing import Any, TypeAlias

import grpc

from millpond.security import Access

GrpcContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Context:
    """The client has the rights that the method declares; `access` answers what else it may do."""

    __slots__ = ("_grpc_context", "access")

    def __init__(self, access: Access, grpc_context: GrpcContext) -> None:
        self.access = access
        self._grpc_context = grpc_context

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """`callback` is called when the call has ended, however it ends."""
        self._grpc_context.add_done_callback(lambda _: callback())  # type: ignore[arg-type]  # any callable works
