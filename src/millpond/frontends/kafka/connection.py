"""One client connection: reads frames, starts requests in order of arrival, and sends responses in request order.

A request starts as soon as the handler of the previous one has started, so several can be in progress; a
response that is ready early waits until the earlier ones are sent. A client that sends bad data or does not
read its responses affects only its own connection. State changes only between awaits.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import Protocol, cast

from millpond.frontends.kafka.authentication import (
    AUTHENTICATE_KEY,
    HANDSHAKE_KEY,
    AuthenticationRules,
    ConnectionAuthentication,
)
from millpond.frontends.kafka.call import KafkaCall, Services
from millpond.frontends.kafka.frames import FrameReader
from millpond.frontends.kafka.handlers.api_versions import unsupported_version
from millpond.frontends.kafka.registry import HANDLERS, Disconnect, RequestHandler
from millpond.frontends.kafka.response_slots import (
    LARGE_BYTES,
    ResponseSlot,
    decode_large,
    decode_request,
    encode_large,
)
from millpond.frontends.kafka.throttling import Mute, RequestUse, charge, measured
from millpond.frontends.kafka.tls_transport import TlsTransport
from millpond.model.errors import AuthenticationFailed, MalformedMessage
from millpond.observability.line_limit import LineLimit
from millpond.observability.metrics import KafkaMetrics
from millpond.protocol import (
    Encoded,
    Request,
    RequestHeader,
    Response,
    encode_response,
    read_request_header,
)
from millpond.protocol.messages.api_versions import ApiVersionsRequest
from millpond.protocol.messages.fetch import FetchRequest
from millpond.protocol.messages.produce import ProduceRequest
from millpond.protocol.messages.share_fetch import ShareFetchRequest

FRAMES_QUEUED_MAX = 8
"""Maximum number of complete frames that wait to be processed; beyond it the connection stops reading the socket."""
REQUESTS_PER_YIELD = 16
"""Maximum number of requests of one client that are started before the event loop serves other clients."""
FETCHES = (FetchRequest, ShareFetchRequest)
PROGRESS_BYTES = 64 * 1024
"""A client that transfers fewer bytes of a request or response than this within `stalled_ms` is considered stalled."""

logger = logging.getLogger(__name__)


class ConnectionHost(Protocol):
    """The parts of the server that a connection uses."""

    services: Services
    authentication: AuthenticationRules
    is_private: bool
    metrics: KafkaMetrics
    staging: bytearray
    lines_before_login: LineLimit

    def opened(self, connection: "KafkaConnection") -> bool: ...
    def closed(self, connection: "KafkaConnection") -> None: ...
    def add_held_bytes(self, change: int) -> None: ...
    def count_request(self, api_key: int) -> None: ...
    def count_response(self, api_key: int, seconds: float) -> None: ...
    def wait_for_memory(self, connection: "KafkaConnection") -> bool: ...
    def make_room(self) -> None: ...


class KafkaConnection(asyncio.BufferedProtocol):
    """A protocol of asyncio: callbacks of the transport, and the steps of a request, which share the flow control.
    It has more than 20 methods because the hot path must not go through further objects."""

    def __init__(self, server: ConnectionHost) -> None:
        self._server = server
        self._limits = server.services.limits
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(self._limits.frame_bytes_max, server.staging)
        self._frames: deque[bytearray] = deque()
        self._slots: deque[ResponseSlot] = deque()
        self._transport: asyncio.Transport | TlsTransport | None = None
        self._tls_transport: TlsTransport | None = None
        self._serving: asyncio.Task[None] | None = None
        self._frame_arrived: asyncio.Future[None] | None = None
        self._progress_made: asyncio.Future[None] | None = None
        self._is_reading = True
        self._is_lost = False
        self._is_draining = False
        self._mute = Mute(self._loop, self._unmute)
        self._waiting_bytes = 0
        self._queued_bytes = 0
        self._ready_bytes = 0
        self._started_requests = 0
        self._received_frames = 0
        self._received_bytes = 0
        self._written_bytes = 0
        self._milestone: tuple[object, ...] = ()
        self._milestone_at = 0.0
        self.is_write_blocked = False
        self.host = ""
        self.encrypted = False
        self.peer_certificate: bytes | None = None
        """The client's verified certificate (DER); None if it sent none."""
        self.active_at = self._loop.time()
        self._login_began_at = self.active_at
        """The broker reads a connection later if its address opens them too fast; until then it cannot log in."""
        self._is_secured = server.services.security.enabled
        self._quotas = server.services.security.quotas
        self._frames_queued_max = FRAMES_QUEUED_MAX

    # -- transport callbacks --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if (ssl_object := transport.get_extra_info("ssl_object")) is not None:
            self.encrypted = True
            self.peer_certificate = ssl_object.getpeercert(binary_form=True)
            self._transport = self._tls_transport = TlsTransport(self._transport)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else "unknown"
        self._authentication = ConnectionAuthentication(
            self._server.authentication,
            self.host,
            is_private=self.encrypted or self._server.is_private,
            certificate=self.peer_certificate,
        )
        self._limit_frames()
        if not self._server.opened(self):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=self._limits.unread_bytes_max)
        self._serving = self._loop.create_task(self._serve())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = self._loop.time()
        self._received_bytes += nbytes
        try:
            for frame in self._reader.received(nbytes):
                self._queue(frame)
        except MalformedMessage as error:
            self._close_malformed(error)
            return
        self._report_waiting_bytes()
        if self._frames and self._frame_arrived is not None and not self._frame_arrived.done():
            self._frame_arrived.set_result(None)
        if len(self._frames) >= self._frames_queued_max or self._server.wait_for_memory(self):
            self._stop_reading()

    def pause_writing(self) -> None:
        if self._tls_transport is not None:
            self._tls_transport.pause_writing()
        self.is_write_blocked = True
        self.active_at = self._loop.time()
        self._report_waiting_bytes()
        self._server.make_room()

    def resume_writing(self) -> None:
        self.active_at = self._loop.time()
        self.is_write_blocked = self._tls_transport is not None and not self._tls_transport.resume_writing()
        self._report_waiting_bytes()
        self._signal_progress()

    def connection_lost(self, exc: Exception | None) -> None:
        """Produce requests that were received completely are still processed: their sender may have used
        acks=0 and expect no response."""
        self._is_lost = True
        self._reader.drop()
        self._mute.cancel()
        self._report_waiting_bytes()
        if self._serving is None or self._serving.done():
            self._drop_frames()
        self._loop.call_soon(self._cancel_waiting)  # a task that has not started yet must not be cancelled
        self._signal_progress()
        self._server.closed(self)

    # -- used by the server ---------------------------------------------------------------------------------------

    @property
    def authentication(self) -> ConnectionAuthentication:
        """Handlers identify the connection by it."""
        return self._authentication

    def seconds_stalled(self, now: float) -> float:
        """Seconds since the client last made progress. Call it regularly: progress is noticed only by comparing with
        the previous call. Progress means PROGRESS_BYTES or a complete frame, not single bytes. A client does not
        count as stalled while the broker is not reading from it."""
        if self.is_write_blocked:
            milestone: tuple[object, ...] = (
                "reads",
                (self._written_bytes - self._unread_bytes) // PROGRESS_BYTES,
            )
        elif self._reader.in_progress and self._is_reading:
            milestone = ("sends", self._received_frames, self._received_bytes // PROGRESS_BYTES)
        else:
            milestone = ()
        if not milestone or milestone != self._milestone:
            self._milestone, self._milestone_at = milestone, now
        return now - self._milestone_at

    @property
    def stuck_bytes(self) -> int:
        """Memory that the broker cannot free without the client: an incomplete request, responses that are
        unread or wait for earlier ones, and the requests queued behind them. Requests queued behind a produce
        are not counted: they continue when the produce is durable."""
        is_producing = any(slot.must_finish for slot in self._slots)
        return self._waiting_bytes + (0 if is_producing else self._queued_bytes)

    @property
    def unsent_bytes(self) -> int:
        """The size of responses that are ready but not yet read by the client."""
        return self._ready_bytes + self._unread_bytes

    @property
    def in_progress(self) -> int:
        return len(self._slots) + len(self._frames)

    @property
    def is_muted(self) -> bool:
        """Whether no requests are read or started, because the client exceeded a quota."""
        return self._mute.is_on

    def resume_reading(self) -> None:
        if self._is_reading or self._is_draining or self.is_muted or self._transport is None:
            return
        if not self._transport.is_closing():
            self._is_reading = True
            self._transport.resume_reading()

    def abort(self, reason: str) -> None:
        if self._transport is None:
            return
        if not self._transport.is_closing():
            self._log_close(reason)
        self._transport.abort()  # also a connection that is closing, and whose client does not read the rest

    def _log_close(self, reason: str) -> None:
        """Only clients that have authenticated may cause any number of lines."""
        unlogged = None
        if not self._authentication.is_authenticated:
            if not self._server.lines_before_login.admits():
                return
            unlogged = self._server.lines_before_login.take_unlogged()
        logger.info(
            "Kafka connection closed", extra={"client": self.host, "reason": reason, "unlogged": unlogged}
        )

    def disconnect(self) -> None:
        """Close at once, even if the connection is closing and waits for its client."""
        if self._transport is not None:
            self._transport.abort()

    async def drain(self) -> None:
        """Stop accepting requests, send responses to the produces in progress, and cancel all other requests."""
        self._is_draining = True
        self._stop_reading()
        self._mute.cancel()
        self._drop_frames()
        self._loop.call_soon(self._cancel_waiting)
        if self._serving is not None:
            await asyncio.wait([self._serving])
        if self._transport is not None:
            self._transport.close()

    # -- requests ---------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            while await self._start_next():
                if self._started_requests % REQUESTS_PER_YIELD == 0:
                    await asyncio.sleep(0)
            while self._slots:
                await self._wait_for_progress()
        except MalformedMessage as error:
            self._close_malformed(error)
        except AuthenticationFailed as error:
            self.abort(str(error))
        except Exception as error:  # an error of one client must not affect the others
            logger.exception(
                "unexpected error in Kafka request; closing connection",
                extra={"client": self.host, "error": error},
            )
            self.abort("a request failed")
        finally:
            self._drop_frames()

    async def _next_frame(self) -> bytearray | None:
        """Wait for the next frame and for permission to start it."""
        while not (self._frames and self._may_start()):
            if not self._frames and (self._is_lost or self._is_draining):
                return None
            await (self._wait_for_progress() if self._frames else self._wait_for_frame())
        frame = self._frames.popleft()
        self._queued_bytes -= len(frame)
        if (
            not self._is_reading
            and len(self._frames) < self._frames_queued_max
            and not self._server.wait_for_memory(self)
        ):
            self.resume_reading()
        return frame

    async def _wait_for_frame(self) -> None:
        self._frame_arrived = self._loop.create_future()
        await self._frame_arrived

    def _queue(self, frame: bytearray) -> None:
        self._received_frames += 1
        self._queued_bytes += len(frame)
        self._server.add_held_bytes(len(frame))
        self._frames.append(frame)

    def _drop_frames(self) -> None:
        self._server.add_held_bytes(-self._queued_bytes)
        self._queued_bytes = 0
        self._frames.clear()

    def _cancel_waiting(self) -> None:
        """Cancel requests whose client has gone or will be disconnected. Produces continue: they may already
        be durable."""
        for slot in self._slots:
            if slot.task is not None and not slot.must_finish:
                slot.task.cancel()
        must_continue = any(slot.must_finish for slot in self._slots) or self._frames
        if self._serving is not None and not must_continue:
            self._serving.cancel()
        elif self._frame_arrived is not None and not self._frame_arrived.done():
            self._frame_arrived.set_result(None)

    def _may_start(self) -> bool:
        """Whether this client is within its quotas, has read enough of its responses and has few enough requests in
        progress. After a disconnect the rest is started without limit: only complete produces are still processed."""
        return self._is_lost or not (
            self.is_muted
            or self.is_write_blocked
            or self._ready_bytes > self._limits.unread_bytes_max
            or len(self._slots) >= self._limits.requests_in_progress_max
        )

    async def _wait_for_progress(self) -> None:
        self._progress_made = self._loop.create_future()
        await self._progress_made

    def _signal_progress(self) -> None:
        if self._progress_made is not None and not self._progress_made.done():
            self._progress_made.set_result(None)

    async def _start_next(self) -> bool:
        """Start the next request. Returns False if there are no more. The frame is not referenced while a
        request waits for its response; otherwise an idle or long-polling client would hold its memory."""
        frame = await self._next_frame()
        if frame is None:
            return False
        self._started_requests += 1
        slot = ResponseSlot(len(frame), self._loop.time())
        if self._quotas.is_active:
            slot.use = RequestUse(len(frame))
        self._slots.append(slot)
        try:
            header, handler, position = self._read_header(slot, frame)
            kind, version = handler.request, header.api_version
            request = None
            if version in kind.versions:
                if slot.is_large:
                    request = await decode_large(kind, version, frame, position)
                else:
                    request = decode_request(kind, version, frame, position)
                if not slot.must_finish:  # only a produce keeps a reference to its frame
                    self._release(slot)
            del frame
            await self._start(slot, header, handler, request)
        except BaseException:
            self._finish(slot)
            raise
        return True

    def _read_header(self, slot: ResponseSlot, frame: bytearray) -> tuple[RequestHeader, RequestHandler, int]:
        """Returns also the position at which the request begins."""
        header, position = read_request_header(frame)
        if self._is_secured:
            self._authentication.admit(header.api_key)
        handler = HANDLERS.get(header.api_key)
        if handler is None:
            raise MalformedMessage(reason=f"unknown API key {header.api_key}")
        self._server.count_request(header.api_key)
        slot.must_finish = handler.request is ProduceRequest
        slot.is_large = len(frame) > LARGE_BYTES and not slot.must_finish
        return header, handler, position

    async def _start(
        self, slot: ResponseSlot, header: RequestHeader, handler: RequestHandler, request: Request | None
    ) -> None:
        await self._wait_for_fetches(slot, is_fetch=handler.request in FETCHES)
        if (self._is_lost or self._is_draining) and not slot.must_finish:
            self._finish(slot)
        elif request is None:
            self._respond(slot, header, _unsupported_version_response(header, handler))
        else:
            await self._handle(slot, header, handler, request)

    async def _wait_for_fetches(self, slot: ResponseSlot, is_fetch: bool) -> None:
        """Run one fetch at a time: its response may be large and cannot be sent before that of the previous
        fetch anyway."""
        while is_fetch and not self._is_lost and any(each.is_fetch and not each.done for each in self._slots):
            await self._wait_for_progress()
        slot.is_fetch = is_fetch

    async def _handle(
        self, slot: ResponseSlot, header: RequestHeader, handler: RequestHandler, request: Request
    ) -> None:
        services, authentication = self._server.services, self._authentication
        client_id = header.client_id or ""
        call = KafkaCall(
            services, header.api_version, client_id, self.host, authentication.access, authentication
        )
        if slot.use is not None and self._quotas.measures_requests:
            result = await measured(handler.begin(call, request), slot.use)
            if handler.pipelined:
                result = measured(result, slot.use)
        else:
            result = await handler.begin(call, request)
        if handler.pipelined:
            slot.task = self._loop.create_task(self._finish_later(slot, header, result))
        else:
            self._respond(slot, header, result, await encode_large(header, result) if slot.is_large else None)
        if header.api_key in (HANDSHAKE_KEY, AUTHENTICATE_KEY):
            self._apply_authentication()

    async def _finish_later(
        self, slot: ResponseSlot, header: RequestHeader, result: Awaitable[Response | None]
    ) -> None:
        try:
            response = await result
            if response is None:
                self._charge(slot, header, None)
                self._finish(slot)
            else:
                encoded = await encode_large(header, response) if slot.is_large else None
                self._respond(slot, header, response, encoded)
        except asyncio.CancelledError:
            self._finish(slot)
            raise
        except Disconnect as reason:
            self.abort(str(reason))
            self._finish(slot)
        except Exception as error:
            logger.exception(
                "unexpected error in Kafka request; closing connection",
                extra={"client": self.host, "error": error},
            )
            self.abort("a request failed")
            self._finish(slot)

    def _respond(
        self, slot: ResponseSlot, header: RequestHeader, response: Response, encoded: Encoded | None = None
    ) -> None:
        version = header.api_version
        if version not in response.versions:  # only ApiVersions responds to unknown versions
            version = 0
        if not self._is_lost:
            slot.encoded = encoded or encode_response(response, version, header.correlation_id)
            if slot.use is not None and self._charge(slot, header, response):
                slot.encoded = encode_response(response, version, header.correlation_id)
            self._ready_bytes += slot.encoded.size
        self._server.count_response(header.api_key, self._loop.time() - slot.began)
        self._finish(slot)

    def _release(self, slot: ResponseSlot) -> None:
        self._server.add_held_bytes(-slot.bytes_held)
        slot.bytes_held = 0

    def _finish(self, slot: ResponseSlot) -> None:
        slot.done = True
        slot.task = None
        self._release(slot)
        buffers, size = [], 0
        while self._slots and self._slots[0].done:
            released = self._slots.popleft()
            if released.encoded is not None:
                buffers += released.encoded.buffers
                size += released.encoded.size
        self._ready_bytes -= size
        if buffers and self._transport is not None and not self._transport.is_closing():
            self.active_at = self._loop.time()
            self._written_bytes += size
            self._transport.writelines(buffers)
        self._report_waiting_bytes()
        self._signal_progress()

    # -- quotas -------------------------------------------------------------------------------------------------

    def _charge(self, slot: ResponseSlot, header: RequestHeader, response: Response | None) -> bool:
        """Count the request for the quotas of the client. Returns whether the response has changed. Clients that have
        not logged in do not count: they would share one bucket, and delay each other's login."""
        if slot.use is None or not self._authentication.is_authenticated:
            return False
        delay_ms = charge(
            self._quotas,
            self._authentication.access.principal,
            header.client_id or "",
            header.api_key,
            slot.use,
            slot.encoded.size if slot.encoded is not None else 0,
            response,
        )
        if delay_ms == 0:
            return False
        self.mute(delay_ms)
        if response is None or not hasattr(response, "throttle_time_ms"):
            return False
        response.throttle_time_ms = delay_ms
        return True

    def mute(self, delay_ms: int) -> None:
        """Read and start nothing for this time. Requests that are in progress continue. A client that disconnects
        meanwhile is noticed when the time is over."""
        if not (self._is_lost or self._is_draining):
            self._stop_reading()
            self._mute.extend(delay_ms)

    def _unmute(self) -> None:
        self.active_at = self._loop.time()
        if not self._authentication.is_authenticated:
            self._login_began_at = self.active_at
        if len(self._frames) < self._frames_queued_max and not self._server.wait_for_memory(self):
            self.resume_reading()
        self._signal_progress()

    # -- security -------------------------------------------------------------------------------------------------

    def why_access_ends(self, now: float) -> str | None:
        """Why this connection must be closed now: its client did not authenticate in time, or no longer may
        continue."""
        if not self._is_secured or self._authentication.is_over:
            return None
        if not self._authentication.is_authenticated:
            is_late = (now - self._login_began_at) * 1000 > self._limits.login_ms and not self.is_muted
            return "it did not authenticate in time" if is_late else None
        try:
            self._authentication.check_valid()
        except AuthenticationFailed as error:
            return str(error)
        return None

    def _apply_authentication(self) -> None:
        self._limit_frames()
        if self._authentication.is_over:
            # kafka-python does not see a response that arrives together with the end of the connection.
            linger_s = self._limits.refused_login_linger_ms / 1000
            self._loop.call_later(linger_s, self.abort, "authentication failed")

    def _limit_frames(self) -> None:
        """Read little from a client before it has authenticated."""
        is_known = self._authentication.is_authenticated
        self._reader.limit = self._limits.frame_bytes_max if is_known else self._limits.login_frame_bytes_max
        self._frames_queued_max = FRAMES_QUEUED_MAX if is_known else 1

    # -- internal -------------------------------------------------------------------------------------------------

    def _close_malformed(self, error: MalformedMessage) -> None:
        self._server.metrics.malformed.inc()
        self.abort(str(error))

    def _stop_reading(self) -> None:
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    @property
    def _unread_bytes(self) -> int:
        if self._is_lost or not self.is_write_blocked or self._transport is None:
            return 0
        return self._transport.get_write_buffer_size()

    def _report_waiting_bytes(self) -> None:
        """Report to the server how much memory this connection holds until the client makes progress."""
        size = self._reader.held_bytes + self.unsent_bytes
        if size != self._waiting_bytes:
            self._server.add_held_bytes(size - self._waiting_bytes)
            self._waiting_bytes = size


def _unsupported_version_response(header: RequestHeader, handler: RequestHandler) -> Response:
    if handler.request is ApiVersionsRequest:
        return unsupported_version()
    versions = handler.request.versions
    raise MalformedMessage(
        reason=f"{handler.request.__name__} v{header.api_version}, where {versions} are supported"
    )
