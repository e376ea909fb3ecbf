"""Connections to brokers, and single calls that are tried again while that may help.

Every call that goes through here may be repeated without harm: it reads, or setting something twice is setting it
once. Producing has its own way (`sender`).
"""

import asyncio
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message as Proto
from google.protobuf.message_factory import GetMessageClass

from millpond.client.errors import error_of, redirect_of
from millpond.model.errors import TimedOut, Unreachable
from millpond.stubs import admin_pb2, log_pb2

DEFAULT_ADDRESS: Final = "127.0.0.1:9999"
LOG: Final = log_pb2.DESCRIPTOR.services_by_name["Log"]
ADMIN: Final = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

Response = TypeVar("Response", bound=Proto)


class Pauses:
    """How long to wait before the next attempt: longer each time, up to a second."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S

    def take(self) -> float:
        pause, self._next_s = self._next_s, min(self._next_s * 2, LONGEST_PAUSE_S)
        return pause


class Connections:
    """One channel for each broker, opened when it is first needed."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._channels: dict[str, grpc.aio.Channel] = {}

    def channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.aio.insecure_channel(address, options=OPTIONS)
        return channel

    async def call(
        self,
        service: ServiceDescriptor,
        name: str,
        request: Proto,
        response: type[Response],
        *,
        address: str = "",
        extra_s: float = 0.0,
    ) -> Response:
        """Ask until there is an answer, the time is up, or the broker says that asking again will not help. What is
        asked of the wrong broker is asked of the right one. `extra_s` is for calls that wait at the broker."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s + extra_s
        address = address or self.address
        pauses = Pauses()
        while True:
            left_s = deadline - loop.time()
            try:
                return await self._once(address, service.methods_by_name[name], request, response, left_s)
            except grpc.aio.AioRpcError as failure:
                error = error_of(failure, address, int((self.timeout_s + extra_s) * 1000))
            if (owner := redirect_of(error)) is not None:
                address = owner
            pause = pauses.take()
            if not error.retriable or isinstance(error, TimedOut) or loop.time() + pause >= deadline:
                raise error
            if isinstance(error, Unreachable):
                address = self.address
            await asyncio.sleep(pause)

    async def _once(
        self,
        address: str,
        method: MethodDescriptor,
        request: Proto,
        response: type[Response],
        timeout_s: float,
    ) -> Response:
        call = self.channel(address).unary_unary(_path(method), _serialize, response.FromString)
        answer: Response = await call(request, timeout=max(timeout_s, 0.001))
        return answer

    def produce_stream(self, address: str) -> Any:
        method = LOG.methods_by_name["ProduceStream"]
        return self.channel(address).stream_stream(
            _path(method), _serialize, GetMessageClass(method.output_type).FromString
        )()

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close() for channel in channels.values()))


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _serialize(message: Proto) -> bytes:
    return message.SerializeToString()
