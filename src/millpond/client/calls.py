"""Connections to brokers, and single calls that are retried while that may help.

Requests through `call` may be repeated without harm: they read, or they set a value that a repetition sets
again. Requests that must not be repeated (a topic that is deleted twice may be another one the second time)
go through `call_at_most_once`, and a broker acts on them at most once. Producing has its own retries (`sender`).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message as Proto
from google.protobuf.message_factory import GetMessageClass

from millpond.client import arguments, forks
from millpond.client.errors import error_of, redirect_of, retry_delay_s
from millpond.client.security import SecurityArguments
from millpond.client.sources import ServerAddresses, resolve
from millpond.model.errors import (
    MillpondError,
    NotCoordinator,
    NotOwner,
    OutcomeUnknown,
    QuotaExceeded,
    Stopping,
    TimedOut,
    Unreachable,
)
from millpond.stubs import admin_pb2, cluster_pb2, log_pb2, payloads_pb2, queue_pb2

LOG: Final = log_pb2.DESCRIPTOR.services_by_name["Log"]
ADMIN: Final = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
PAYLOADS: Final = payloads_pb2.DESCRIPTOR.services_by_name["Payloads"]
QUEUE: Final = queue_pb2.DESCRIPTOR.services_by_name["Queue"]
CLUSTER: Final = cluster_pb2.DESCRIPTOR.services_by_name["Cluster"]
BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
ATTEMPTS: Final = 2
"""How many attempts fit into a timeout if a broker is silent."""
ATTEMPT_S_MAX: Final = 15.0
OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # also the limit of one attempt to connect
    ("grpc.max_reconnect_backoff_ms", 1_000),
    (
        "grpc.use_local_subchannel_pool",
        1,
    ),  # otherwise a new channel would share the silent connection of an old one
]
READY: Final = grpc.ChannelConnectivity.READY
FAILED: Final = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)

ProtoResponse = TypeVar("ProtoResponse", bound=Proto)
NO_ARGUMENTS: Final = SecurityArguments()


class Pauses:
    """The delay before the next attempt: longer each time, up to a second, or what the broker says."""

    def __init__(self) -> None:
        self._next_s = BACKOFF_MIN_S

    def take(self, *errors: MillpondError) -> float:
        """`errors` are those of the last attempt."""
        pause, self._next_s = self._next_s, min(self._next_s * 2, BACKOFF_MAX_S)
        return max(pause, *map(retry_delay_s, errors), 0.0)


class Connections:
    """One channel for each broker, opened when it is first needed. Remembers the address of every broker that
    it learns of. Every request carries the client's credentials: addresses come from the caller, or from a broker
    that the client trusts."""

    def __init__(
        self, address: ServerAddresses, timeout_s: float, security: SecurityArguments = NO_ARGUMENTS
    ) -> None:
        """`address` is the broker to try first, or several of which any will do (a list, or separated by
        commas). None is the default."""
        addresses, self._security = resolve(address, security)
        self.address = addresses[0]
        self.timeout_s = arguments.timeout("timeout", timeout_s)
        self.attempt_s = min(timeout_s / ATTEMPTS, ATTEMPT_S_MAX)
        self._known = dict.fromkeys(addresses)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.is_closed = False

    def add_known_address(self, address: str) -> None:
        self._known[address] = None

    def next_known_address(self, address: str) -> str:
        """The broker to try if this one does not respond: the next known one, round robin. It may be the same one."""
        known = list(self._known)
        index = known.index(address) if address in self._known else -1
        return known[(index + 1) % len(known)]

    def known_addresses(self, first: str) -> list[str]:
        """Every known address once, in the order in which to try them."""
        return list(dict.fromkeys([first, *self._known]))

    def channel(self, address: str) -> grpc.aio.Channel:
        if self.is_closed:
            raise Stopping("The client is closed.")
        forks.check()
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._security.open_channel(address, OPTIONS)
        return channel

    def drop_channel(self, address: str) -> None:
        """The connection has gone silent: the next call to this broker opens a new one."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            closing = asyncio.ensure_future(channel.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def call(
        self,
        service: ServiceDescriptor,
        name: str,
        request: Proto,
        response: type[ProtoResponse],
        *,
        address: str = "",
    ) -> ProtoResponse:
        """Send the request until there is a response, the time is up, or the broker returns an error that is
        not retriable. A broker that is not the owner redirects the request to the owner. If a broker does not
        respond, another one is tried."""

        async def attempt(address: str, left_s: float) -> ProtoResponse:
            timeout_s = min(left_s, self.attempt_s)
            return await self.call_once(
                service, name, request, response, address=address, timeout_s=timeout_s
            )

        return await self.call_with_retries(attempt, lambda error: error.retriable, address)

    async def call_at_most_once(
        self,
        service: ServiceDescriptor,
        name: str,
        request: Proto,
        response: type[ProtoResponse],
        *,
        address: str = "",
    ) -> ProtoResponse:
        """Like `call`, for requests that must not take effect twice. They are sent again only if they certainly had
        no effect: there was no connection yet, or the broker responded that it is not the owner, or that a quota is
        exceeded."""
        is_sent = False

        async def attempt(address: str, left_s: float) -> ProtoResponse:
            nonlocal is_sent
            is_sent = False
            until = asyncio.get_running_loop().time() + left_s
            await self._connect(address, min(left_s, self.attempt_s))
            is_sent = True
            left_s = until - asyncio.get_running_loop().time()
            return await self.call_once(service, name, request, response, address=address, timeout_s=left_s)

        def may_repeat(error: MillpondError) -> bool:
            return isinstance(error, NotOwner | NotCoordinator | QuotaExceeded) or (
                error.retriable and not is_sent
            )

        try:
            return await self.call_with_retries(attempt, may_repeat, address)
        except Unreachable as error:
            if not is_sent:
                raise
            raise OutcomeUnknown(
                f"The connection was lost before the response to {name}: whether it was done is not known.",
                **error.facts,
            ) from error

    async def call_with_retries(
        self,
        attempt: Callable[[str, float], Awaitable[ProtoResponse]],
        may_repeat: Callable[[MillpondError], bool],
        address: str,
    ) -> ProtoResponse:
        """`attempt` gets an address and the seconds left. The first address is this one, or the usual one if it is
        empty."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.timeout_s
        address = address or self.address
        pauses = Pauses()
        while True:
            try:
                return await attempt(address, deadline - loop.time())
            except MillpondError as failed:
                error = failed
            pause = pauses.take(error)
            if not may_repeat(error) or self.is_closed or loop.time() + pause >= deadline:
                raise error
            address = self._next_address(address, error)
            await asyncio.sleep(pause)

    def _next_address(self, address: str, error: MillpondError) -> str:
        if (owner := redirect_of(error)) is not None:
            self.add_known_address(owner)
            return owner
        if not isinstance(error, Unreachable | TimedOut | NotCoordinator):
            return address
        following = self.next_known_address(address)
        if address == self.address and not isinstance(error, NotCoordinator):
            self.address = following  # the next call need not wait for the silent broker
        return following

    async def _connect(self, address: str, timeout_s: float) -> None:
        """Returns when there is a connection. If it raises, nothing was sent."""
        channel = self.channel(address)
        try:
            async with asyncio.timeout(timeout_s):
                while (state := channel.get_state(try_to_connect=True)) is not READY:
                    if state in FAILED:
                        raise Unreachable(address=address, reason="there is no connection to it")
                    await channel.wait_for_state_change(state)
        except TimeoutError:
            self.drop_channel(address)
            raise Unreachable(address=address, reason="it takes no connection") from None
        except (grpc.aio.UsageError, RuntimeError):
            raise self._ended(address) from None

    async def call_once(
        self,
        service: ServiceDescriptor,
        name: str,
        request: Proto,
        response: type[ProtoResponse],
        *,
        address: str,
        timeout_s: float,
    ) -> ProtoResponse:
        """Send the request to this broker, once."""
        method = service.methods_by_name[name]
        call = self.channel(address).unary_unary(_path(method), _serialize, response.FromString)
        metadata = self._security.metadata()
        try:
            received: ProtoResponse = await call(request, timeout=max(timeout_s, 0.001), metadata=metadata)
        except grpc.aio.AioRpcError as failure:
            error = error_of(failure, address, int(self.timeout_s * 1000))
            if isinstance(error, TimedOut):
                self.drop_channel(address)
            raise error from failure
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise self._ended(address) from None
        return received

    def _ended(self, address: str) -> MillpondError:
        if self.is_closed:
            return Stopping("The client was closed during the call.")
        return Unreachable(address=address, reason="no response arrived on the connection, and it was closed")

    def produce_stream(self, address: str) -> Any:
        return self._stream(address, LOG.methods_by_name["ProduceStream"])

    def subscribe_stream(self, address: str) -> Any:
        return self._stream(address, QUEUE.methods_by_name["Subscribe"])

    def _stream(self, address: str, method: MethodDescriptor) -> Any:
        decode = GetMessageClass(method.output_type).FromString
        call = self.channel(address).stream_stream(_path(method), _serialize, decode)
        return call(metadata=self._security.metadata())

    @contextmanager
    def translating(self, address: str) -> Iterator[None]:
        """Translate gRPC's errors of a stream."""
        try:
            yield
        except grpc.aio.AioRpcError as failure:
            raise error_of(failure, address, int(self.timeout_s * 1000)) from failure
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            raise self._ended(address) from None

    def upload(self, address: str, requests: AsyncIterator[Proto], timeout_s: float) -> Any:
        """Returns a call to be awaited."""
        method = PAYLOADS.methods_by_name["Upload"]
        decode = payloads_pb2.UploadResponse.FromString
        call = self.channel(address).stream_unary(_path(method), _serialize, decode)
        return call(requests, timeout=timeout_s, metadata=self._security.metadata())

    def download(self, address: str, request: Proto, timeout_s: float) -> Any:
        """Returns a call whose responses are iterated over."""
        method = PAYLOADS.methods_by_name["Download"]
        decode = payloads_pb2.DownloadResponse.FromString
        call = self.channel(address).unary_stream(_path(method), _serialize, decode)
        return call(request, timeout=timeout_s, metadata=self._security.metadata())

    async def close(self) -> None:
        self.is_closed = True
        channels, self._channels = self._channels, {}
        await asyncio.gather(*(channel.close() for channel in channels.values()))
        await asyncio.gather(*self._closing, return_exceptions=True)


def _is_cancelled() -> bool:
    """Whether this task was cancelled. gRPC raises the same error when a channel is closed."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def _serialize(message: Proto) -> bytes:
    return message.SerializeToString()
