"""TLS of the listeners: the current certificate, its replacement while the broker runs, and credentials for gRPC.

A new certificate is used for new handshakes only; connections keep the one that they began with. A file that cannot be
used changes nothing.
"""

import logging
import ssl

import grpc

from millpond.model.clock import Clock, SystemClock
from millpond.security.certificates import LoadedTls, TlsContents, load_files, read_files
from millpond.security.reloader import TlsReloader
from millpond.security.tls_files import REQUIRED_CLIENT_AUTH, InvalidCertificate, TlsFiles

__all__ = ["InvalidCertificate", "ServerTls", "TlsFiles", "TlsReloader"]

logger = logging.getLogger(__name__)


class ServerTls:
    """Raises `InvalidCertificate` if the first certificate cannot be used. `reload` may run on a thread: it replaces
    the loaded state in one assignment."""

    def __init__(self, files: TlsFiles, *, clock: Clock | None = None) -> None:
        self._files = files
        self._clock = clock or SystemClock()
        self._loaded = load_files(files, self._clock.now_ms())
        self._reported = ""
        self._refusal = ""

    @property
    def current(self) -> ssl.SSLContext:
        """For the next handshake."""
        return self._loaded.context

    @property
    def names(self) -> frozenset[str]:
        """DNS names and IP addresses in the current certificate."""
        return self._loaded.names

    def seconds_to_expiry(self) -> float:
        """Negative when the current certificate has expired."""
        return (self._loaded.expires_at_ms - self._clock.now_ms()) / 1000

    def changed(self) -> bool:
        """Whether the files differ from what was loaded, or cannot be read."""
        try:
            return read_files(self._files) != self._loaded.contents
        except InvalidCertificate:
            return True

    def reload(self) -> bool:
        """Use the files for new handshakes, if they are good. Otherwise keep the current certificate and log why."""
        self._reported = ""
        return self._reload()

    def reload_if_changed(self) -> bool:
        """Like `reload`, and logs the same reason only once."""
        return self.changed() and self._reload()

    def _reload(self) -> bool:
        try:
            self._loaded = load_files(self._files, self._clock.now_ms())
        except Exception as error:  # noqa: BLE001  # whatever a file contains, the broker continues with the current one
            self._report(str(error))
            return False
        self._reported = ""
        logger.info(
            "certificate reloaded",
            extra={"path": str(self._files.certificate), "expires_in_s": int(self.seconds_to_expiry())},
        )
        return True

    def _report(self, reason: str) -> None:
        if reason == self._reported:
            return
        self._reported = self._refusal = reason
        logger.warning(
            "certificate not reloaded; keeping the current one",
            extra={"path": str(self._files.certificate), "reason": reason},
        )

    def take_refusal(self) -> str:
        """Why the last files were refused, once; empty otherwise."""
        refusal, self._refusal = self._refusal, ""
        return refusal

    # -- gRPC -------------------------------------------------------------------------------------------------

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """For one port. gRPC asks for the certificate before every handshake. It supports required client
        certificates or none: with `optional` it does not ask for them."""
        required = self._files.client_auth == REQUIRED_CLIENT_AUTH
        sent: LoadedTls = self._loaded

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal sent
            if sent is self._loaded:
                return None  # unchanged
            sent = self._loaded
            return _grpc_configuration(sent.contents, required)

        return grpc.dynamic_ssl_server_credentials(
            _grpc_configuration(sent.contents, required),
            fetch,  # type: ignore[arg-type]  # gRPC documents None for "unchanged", its types do not
            require_client_authentication=required,
        )

    def broker_channel(self, address: str) -> grpc.aio.Channel:
        """To another broker, which must have a certificate of the CA in `client_ca`, or of a public CA if that is not
        set. This broker presents its own certificate where client certificates are required."""
        contents, required = self._loaded.contents, self._files.client_auth == REQUIRED_CLIENT_AUTH
        credentials = grpc.ssl_channel_credentials(
            contents.client_ca,
            contents.key if required else None,
            contents.certificate if required else None,
        )
        return grpc.aio.secure_channel(address, credentials)


def _grpc_configuration(contents: TlsContents, required: bool) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(contents.key, contents.certificate)], contents.client_ca if required else None
    )
