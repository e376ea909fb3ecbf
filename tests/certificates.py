"""Certificates for tests: an authority of their own, which signs those of servers and clients."""

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=365)
MARGIN = timedelta(days=1)


@dataclass(frozen=True)
class CertificateFiles:
    """The paths of a certificate and its key, both in PEM form."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority whose files lie in a folder. `ca` is the path of its own certificate."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        usage = x509.BasicConstraints(ca=True, path_length=0)
        signed = self._builder(self._name, self._key.public_key()).add_extension(usage, critical=True)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(_pem(signed.sign(self._key, hashes.SHA256())))

    def server(self, *names: str, file: str = "server", expires_in: timedelta = VALID) -> CertificateFiles:
        """A certificate for these host names and addresses; for this machine unless told otherwise."""
        found = [_general_name(each) for each in names or ("localhost", "127.0.0.1", "::1")]
        return self._issue(file, _named(file), x509.SubjectAlternativeName(found), expires_in)

    def client(self, name: str, *, expires_in: timedelta = VALID) -> CertificateFiles:
        """A certificate with this common name."""
        return self._issue(
            name, _named(name), x509.SubjectAlternativeName([x509.DNSName("client")]), expires_in
        )

    def _issue(
        self,
        file: str,
        subject: x509.Name,
        names: x509.SubjectAlternativeName,
        expires_in: timedelta,
    ) -> CertificateFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = self._builder(subject, key.public_key(), expires_in)
        signed = builder.add_extension(names, critical=False).add_extension(usage, critical=False)
        issued = CertificateFiles(self._folder / f"{file}.pem", self._folder / f"{file}.key")
        issued.certificate.write_bytes(_pem(signed.sign(self._key, hashes.SHA256())))
        issued.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        issued.key.chmod(0o600)
        return issued

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, expires_in: timedelta = VALID
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + expires_in) - MARGIN)
            .not_valid_after(now + expires_in)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
