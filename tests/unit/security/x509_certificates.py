"""Certificates for tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from tests.unit.security.issuer import key
from tests.unit.security.proofs import NOW_MS

NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)


def common_name(name):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate(subject, *, lasts=timedelta(days=1), now=NOW):
    """A certificate that is signed by its own key, for 127.0.0.1."""
    private = key("ec-certificate")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + lasts)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(private, hashes.SHA256())
    )


def der(subject, **options):
    return certificate(subject, **options).public_bytes(serialization.Encoding.DER)


def pem_files(folder):
    """Write a certificate that is valid today, and its key. Returns their paths."""
    made = certificate(common_name("localhost"), now=datetime.now(UTC))
    chain, private = folder / "server.pem", folder / "server.key"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    private.write_bytes(
        key("ec-certificate").private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    return chain, private
