"""Certificates of the development CA: clients with strict checks accept them, and nothing is overwritten."""

import ssl
import stat
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from millpond.security.development_ca import (
    create_development_files,
    issue_ca,
    issue_certificate,
    write_private,
)

NOW = datetime.now(UTC)


def handshake(server_context, client_context, host):
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client.version()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "pond.example", "192.0.2.7"])
def test_a_strict_client_verifies_every_name(tmp_path, host):
    files = create_development_files(tmp_path / "pki", ["pond.example", "192.0.2.7"])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(files.certificate, files.key)
    client = ssl.create_default_context(cafile=str(files.ca))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert handshake(server, client, host) == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client, "elsewhere.example")


def test_keys_are_of_p256_and_private(tmp_path):
    files = create_development_files(tmp_path / "pki")
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(files.ca.parent.stat().st_mode) == 0o700
    for path in (files.ca, files.certificate):
        key = x509.load_pem_x509_certificate(path.read_bytes()).public_key()
        assert isinstance(key.curve, ec.SECP256R1)


def test_a_certificate_of_a_host_cannot_issue_others():
    issued = issue_certificate(issue_ca(NOW), hosts=["localhost"], now=NOW).certificate
    assert issued.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    assert not issued.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign


def test_a_client_certificate_is_for_no_server():
    issued = issue_certificate(issue_ca(NOW), name="alice", now=NOW).certificate
    purposes = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert issued.subject.rfc4514_string() == "CN=alice"


def test_existing_files_are_not_overwritten(tmp_path):
    (tmp_path / "server-key.pem").write_text("mine")
    with pytest.raises(FileExistsError):
        create_development_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["server-key.pem"]
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "server-key.pem", b"x")
    assert (tmp_path / "server-key.pem").read_text() == "mine"


@pytest.mark.parametrize("host", ["", "a b", "https://a", "a:1", "user@a", "bücher.example"])
def test_what_is_no_host_is_refused_before_a_file_is_created(tmp_path, host):
    with pytest.raises(ValueError, match="neither a host name nor an IP address"):
        create_development_files(tmp_path / "pki", [host])
    assert not (tmp_path / "pki").exists()
