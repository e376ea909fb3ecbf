"""The files of TLS, by name. `certificates.py` reads them; this module loads quickly, for brokers without TLS."""

from pathlib import Path
from typing import Final, NamedTuple

NO_CLIENT_AUTH: Final = "none"
OPTIONAL_CLIENT_AUTH: Final = "optional"
REQUIRED_CLIENT_AUTH: Final = "required"
CLIENT_AUTH: Final = (NO_CLIENT_AUTH, OPTIONAL_CLIENT_AUTH, REQUIRED_CLIENT_AUTH)


class InvalidCertificate(ValueError):
    """A certificate, key or CA that cannot be used, with the reason."""


class TlsFiles(NamedTuple):
    """PEM files. `certificate` is the chain, the server's own certificate first."""

    certificate: Path
    key: Path
    client_ca: Path | None = None
    """CAs of client certificates, and of the other brokers' certificates."""
    client_auth: str = NO_CLIENT_AUTH
