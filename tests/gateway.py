"""A gRPC server in front of a broker, for tests of clients: it records and checks credentials, over TLS if told to."""

import asyncio
from functools import partial
from pathlib import Path

import grpc
from tests.certificates import CertificateFiles

from millpond.frontends.rpc.errors import refusal_of, status_of
from millpond.model.errors import AuthenticationFailed, MillpondError, NotAuthenticated

UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Gateway(grpc.GenericRpcHandler):
    """`calls` has the name and the `authorization` of every call. Calls whose authorization is not in `accepted` are
    refused; None accepts all. A gateway that is not told of a `broker` refuses every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None]] = []
        self.accepted: set[str] | None = None
        self.with_details = True
        self.common_names: set[bytes] = set()
        self.address = ""
        self._broker: grpc.aio.Channel | None = None
        self._open: set[asyncio.Event] = set()
        self._server = grpc.aio.server(options=UNLIMITED)
        self._server.add_generic_rpc_handlers((self,))

    async def start(self, files: CertificateFiles | None = None, client_ca: Path | None = None) -> None:
        if files is None:
            port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            pair = (files.key.read_bytes(), files.certificate.read_bytes())
            ca = None if client_ca is None else client_ca.read_bytes()
            credentials = grpc.ssl_server_credentials([pair], ca, client_ca is not None)
            port = self._server.add_secure_port("127.0.0.1:0", credentials)
        await self._server.start()
        self.address = f"127.0.0.1:{port}"

    def forward_to(self, broker: str) -> None:
        self._broker = grpc.aio.insecure_channel(broker, options=UNLIMITED)

    def expire(self) -> None:
        """End the streams that are open, as a broker does when their credentials have expired."""
        for each in self._open:
            each.set()

    async def stop(self) -> None:
        await self._server.stop(0)
        if self._broker is not None:
            await self._broker.close()

    def authorizations(self, *names: str) -> set[str | None]:
        """The authorizations of the calls with these names, or of all."""
        return {authorization for name, authorization in self.calls if not names or name in names}

    # -- calls --------------------------------------------------------------------------------------------------

    def service(self, details):
        """Every call is a stream of bytes in both directions here."""
        return grpc.stream_stream_rpc_method_handler(partial(self._serve, details.method))

    async def _serve(self, method, requests, context):
        authorization = dict(context.invocation_metadata()).get("authorization")
        self.calls.append((method.rpartition("/")[2], authorization))
        self.common_names |= set(context.auth_context().get("x509_common_name", ()))
        if self.accepted is not None and authorization not in self.accepted:
            await self._abort(
                context, NotAuthenticated() if authorization is None else AuthenticationFailed()
            )
        if self._broker is None:
            await self._abort(context, AuthenticationFailed())
        call = self._broker.stream_stream(method, None, None)(requests)
        expired = asyncio.Event()
        self._open.add(expired)
        try:
            while (response := await _read(call, expired)) is not grpc.aio.EOF:
                if response is None:
                    await self._abort(context, AuthenticationFailed())
                yield response
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details(), tuple(error.trailing_metadata() or ()))
        finally:
            self._open.discard(expired)
            call.cancel()

    async def _abort(self, context, error: MillpondError) -> None:
        refusal = refusal_of(error)
        details = (("grpc-status-details-bin", status_of(refusal, 0)),) if self.with_details else ()
        await context.abort(refusal.code, refusal.message, details)


async def _read(call, expired: asyncio.Event):
    """The next response; None once the credentials have expired."""
    tasks = [asyncio.ensure_future(call.read()), asyncio.ensure_future(expired.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return None if tasks[1].done() else tasks[0].result()
    finally:
        for each in tasks:
            each.cancel()
