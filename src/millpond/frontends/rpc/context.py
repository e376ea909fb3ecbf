"""What a method of a service knows about its call, besides the request."""

from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc

from millpond.model.addresses import split_address
from millpond.model.quotas import CONSUMER_BYTE_RATE
from millpond.security import Access
from millpond.security.throttling import QuotaPacer

GrpcContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class Context:
    """The client has the rights that the method declares; `access` answers what else it may do."""

    __slots__ = ("_grpc_context", "_pacer", "access")

    def __init__(self, access: Access, grpc_context: GrpcContext, pacer: QuotaPacer) -> None:
        self.access = access
        self._pacer = pacer
        self._grpc_context = grpc_context

    @property
    def client_host(self) -> str:
        """The address of the client, without a port; empty if it is unknown."""
        return host_of(self._grpc_context.peer())

    async def sent(self, size: int) -> None:
        """Call it after each response of a stream with messages: it waits while the client is beyond its quota."""
        if self.access.quotas.is_active:
            await self._pacer.transferred(self.access, CONSUMER_BYTE_RATE, size)

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """`callback` is called when the call has ended, however it ends."""
        self._grpc_context.add_done_callback(lambda _: callback())  # type: ignore[arg-type]  # any callable works


def host_of(peer: str) -> str:
    """Of `ipv4:127.0.0.1:80` or `ipv6:%5B::1%5D:80`."""
    kind, _, address = unquote(peer).partition(":")
    return split_address(address)[0] if kind in ("ipv4", "ipv6") else ""
