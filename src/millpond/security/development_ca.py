"""Creates a CA and a server certificate for development and tests, in a folder that only its owner can read.

Everyone who has the CA's key can issue certificates that its users trust: production uses certificates of its own CA.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
CA_LIFETIME: Final = timedelta(days=3650)
CERTIFICATE_LIFETIME: Final = timedelta(days=825)
"""Some systems accept no server certificate that is valid for longer."""
CLOCK_SKEW: Final = timedelta(hours=1)
"""Certificates are valid from this time before they are issued: the clocks of other machines may be late."""
COMMON_NAME_MAX: Final = 64


class DevelopmentFiles(NamedTuple):
    ca: Path
    ca_key: Path
    certificate: Path
    key: Path


class Issued(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def files_in(folder: Path) -> DevelopmentFiles:
    return DevelopmentFiles(
        folder / "ca.pem", folder / "ca-key.pem", folder / "server.pem", folder / "server-key.pem"
    )


def create_development_files(
    folder: Path, hosts: Sequence[str] = (), *, now: datetime | None = None
) -> DevelopmentFiles:
    """Create a CA, and a certificate for this machine's loopback names and `hosts`. Raises `FileExistsError`, and
    creates nothing, if one of the files exists, and `ValueError` if a host is neither a name nor an IP address."""
    moment = now or datetime.now(UTC)
    ca = issue_ca(moment)
    server = issue_certificate(ca, hosts=(*LOCAL_HOSTS, *hosts), now=moment)
    files = files_in(folder)
    for path in files:
        if path.exists():
            raise FileExistsError(None, "it exists, and is not overwritten", str(path))
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    write_private(files.ca_key, ca.key_pem())
    write_private(files.ca, ca.certificate_pem())
    write_private(files.key, server.key_pem())
    write_private(files.certificate, server.certificate_pem())
    return files


def issue_ca(now: datetime, name: str = "Millpond development CA") -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(name), _name(name), key, now, CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(of_ca=True), critical=True)
    )
    return Issued(builder.sign(key, SHA256()), key)


def issue_certificate(
    ca: Issued,
    *,
    hosts: Sequence[str] = (),
    name: str = "",
    now: datetime,
    lifetime: timedelta = CERTIFICATE_LIFETIME,
) -> Issued:
    """For a server (`hosts`), which may also present it to other brokers, or for a client (`name`)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name((name or hosts[0])[:COMMON_NAME_MAX])
    builder = (
        _builder(subject, ca.certificate.subject, key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(of_ca=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False
        )
        .add_extension(_purposes(is_server=bool(hosts)), critical=False)
    )
    if hosts:
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Issued(builder.sign(ca.key, SHA256()), key)


def write_private(path: Path, content: bytes) -> None:
    """Create a file that only its owner can read. Raises `FileExistsError`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        if not host or not host.isascii() or any(each.isspace() or each in ":/@" for each in host):
            raise ValueError(f"{host!r} is neither a host name nor an IP address") from None
        return x509.DNSName(host)


def _purposes(*, is_server: bool) -> x509.ExtendedKeyUsage:
    client = [ExtendedKeyUsageOID.CLIENT_AUTH]
    return x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, *client] if is_server else client)


def _key_usage(*, of_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not of_ca,
        key_cert_sign=of_ca,
        crl_sign=of_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
