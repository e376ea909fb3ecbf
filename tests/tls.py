"""Certificates for tests, and brokers and clients that use them."""

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from millpond.security.development_ca import LOCAL_HOSTS, issue_ca, issue_certificate
from millpond.security.tls_files import TlsFiles

NOW = datetime.now(UTC)
A_YEAR = timedelta(days=365)
AN_HOUR = timedelta(hours=1)
GIVE_UP_S = 60


class Pki:
    """A CA in a folder, and the files of one server."""

    def __init__(self, folder: Path) -> None:
        self.ca = issue_ca(NOW)
        self.ca_path = folder / "ca.pem"
        self.certificate = folder / "server.pem"
        self.key = folder / "server-key.pem"
        self.ca_path.write_bytes(self.ca.certificate_pem())
        self.install(self.issue())

    def issue(self, *, hosts=LOCAL_HOSTS, now=NOW, lifetime=A_YEAR):
        return issue_certificate(self.ca, hosts=hosts, now=now, lifetime=lifetime)

    def install(self, issued):
        """Replace the server's files."""
        self.certificate.write_bytes(issued.certificate_pem())
        self.key.write_bytes(issued.key_pem())
        return issued

    def expired(self):
        return self.issue(now=NOW - A_YEAR, lifetime=AN_HOUR)

    def files(self, client_auth="none"):
        return TlsFiles(self.certificate, self.key, self.ca_path, client_auth)

    def settings(self, client_auth="none"):
        """Of a broker."""
        return {
            "tls": "on",
            "tls_certificate": str(self.certificate),
            "tls_key": str(self.key),
            "tls_client_ca": str(self.ca_path),
            "tls_client_auth": client_auth,
        }

    def client_files(self, name="alice", ca=None, *, file=None, now=NOW, lifetime=A_YEAR):
        """Paths of a client's certificate and key."""
        issued = issue_certificate(ca or self.ca, name=name, now=now, lifetime=lifetime)
        file = file or name
        certificate, key = self.ca_path.with_name(f"{file}.pem"), self.ca_path.with_name(f"{file}-key.pem")
        certificate.write_bytes(issued.certificate_pem())
        key.write_bytes(issued.key_pem())
        return certificate, key

    def expired_client_files(self, name="alice"):
        return self.client_files(name, file=f"{name}-expired", now=NOW - A_YEAR, lifetime=AN_HOUR)

    def client_context(self, client_files=None):
        """Of a client that trusts this CA."""
        context = ssl.create_default_context(cafile=str(self.ca_path))
        if client_files is not None:
            context.load_cert_chain(*client_files)
        return context


def old_client_context():
    """Of a client that supports no newer version than TLS 1.1, and verifies nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.options &= ~(ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


async def until(condition):
    """Wait until something has happened elsewhere in this event loop."""
    async with asyncio.timeout(GIVE_UP_S):
        while not condition():
            await asyncio.sleep(0.001)


async def close(writer):
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
