"""Reads certificates and keys from files and checks them, before a listener uses them."""

import ssl
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from millpond.security.tls_files import NO_CLIENT_AUTH, REQUIRED_CLIENT_AUTH, InvalidCertificate, TlsFiles

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2. The suites of TLS 1.3 are all of this kind."""
FILE_BYTES_MAX: Final = 1024 * 1024


class TlsContents(NamedTuple):
    """The files' bytes."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


class LoadedTls(NamedTuple):
    """What a listener needs for new connections."""

    context: ssl.SSLContext
    contents: TlsContents
    names: frozenset[str]
    """DNS names and IP addresses in the certificate, in lower case; a name may begin with `*.`."""
    expires_at_ms: int


def read_files(files: TlsFiles) -> TlsContents:
    """Raises `InvalidCertificate` if a file cannot be read."""
    client_ca = _read(files.client_ca) if files.client_ca is not None else None
    return TlsContents(_read(files.certificate), _read(files.key), client_ca)


def load_files(files: TlsFiles, now_ms: int) -> LoadedTls:
    """Read the files, check them, and build a context. Raises `InvalidCertificate`."""
    contents = read_files(files)
    chain = _parse_certificates(contents.certificate, files.certificate)
    _check_key(contents.key, chain[0])
    _check_chain(chain)
    _check_dates(chain[0], now_ms)
    context = _server_context(files, contents)
    if read_files(files) != contents:
        raise InvalidCertificate("the files changed while they were read")
    return LoadedTls(context, contents, names_in(chain[0]), _milliseconds(chain[0].not_valid_after_utc))


def expiries_in(content: bytes) -> list[int]:
    """When each certificate of a PEM file expires, in milliseconds since 1970."""
    return [
        _milliseconds(each.not_valid_after_utc) for each in _parse_certificates(content, Path("the file"))
    ]


def names_in(certificate: x509.Certificate) -> frozenset[str]:
    """The names under which a client may verify this certificate."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = found.get_values_for_type(x509.IPAddress)
    return frozenset(
        (*(name.lower() for name in found.get_values_for_type(x509.DNSName)), *map(str, addresses))
    )


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidCertificate(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > FILE_BYTES_MAX:
        raise InvalidCertificate(f"{path} is too large for a PEM file")
    return content


def _parse_certificates(content: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise InvalidCertificate(f"{path} has no certificate in PEM format") from error


def _check_key(content: bytes, certificate: x509.Certificate) -> None:
    try:
        key = load_pem_private_key(content, None)
    except TypeError as error:
        raise InvalidCertificate("the key is encrypted; store it without a passphrase") from error
    except ValueError as error:
        raise InvalidCertificate("the key is not a private key in PEM format") from error
    if key.public_key() != certificate.public_key():
        raise InvalidCertificate("the key does not belong to the certificate")


def _check_chain(chain: list[x509.Certificate]) -> None:
    for number, (issued, issuer) in enumerate(pairwise(chain), 1):
        if issued.issuer != issuer.subject:
            raise InvalidCertificate(
                f"certificate {number + 1} of the chain is not the issuer of certificate {number}"
            )


def _check_dates(certificate: x509.Certificate, now_ms: int) -> None:
    if now_ms >= _milliseconds(certificate.not_valid_after_utc):
        raise InvalidCertificate(
            f"the certificate expired at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        )
    if now_ms < _milliseconds(certificate.not_valid_before_utc):
        raise InvalidCertificate(
            f"the certificate is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        )


def _server_context(files: TlsFiles, contents: TlsContents) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_passphrase)
    except (OSError, ValueError) as error:
        raise InvalidCertificate(f"OpenSSL refuses the certificate or key: {error}") from error
    if files.client_auth != NO_CLIENT_AUTH:
        _verify_clients(context, files, contents)
    return context


def _verify_clients(context: ssl.SSLContext, files: TlsFiles, contents: TlsContents) -> None:
    """Without session tickets: a ticket would admit a client after its CA was removed."""
    if contents.client_ca is None:
        raise InvalidCertificate("client certificates are checked, but no CA for them is set")
    try:
        context.load_verify_locations(cadata=contents.client_ca.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidCertificate(f"{files.client_ca} has no CA certificate in PEM format") from error
    required = files.client_auth == REQUIRED_CLIENT_AUTH
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0


def _refuse_passphrase() -> str:
    """Without it, OpenSSL would ask on the terminal."""
    raise ValueError("the key is encrypted")


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
