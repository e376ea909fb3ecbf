"""The certificate of the listeners: what is accepted, and how it is replaced."""

import asyncio
import logging
import ssl
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from tests.tls import A_YEAR, NOW, Pki

from millpond.security.certificates import FILE_BYTES_MAX
from millpond.security.development_ca import issue_ca
from millpond.security.tls import InvalidCertificate, ServerTls, TlsFiles, TlsReloader

NOT_RELOADED = "certificate not reloaded; keeping the current one"


class FixedClock:
    def __init__(self, moment=NOW):
        self.moment = moment

    def now_ms(self):
        return int(self.moment.timestamp() * 1000)

    def monotonic_ms(self):
        return 0


def serial_of(tls):
    """Of the certificate that a handshake with the current context shows."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_mode = ssl.CERT_NONE
    client = client_context.wrap_bio(incoming, outgoing)
    server = tls.current.wrap_bio(outgoing, incoming, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return client.getpeercert(binary_form=True)


def der(issued):
    return issued.certificate.public_bytes(Encoding.DER)


def reasons(caplog):
    return [record.reason for record in caplog.records if record.message == NOT_RELOADED]


def test_only_modern_versions_and_ciphers_are_offered(pki):
    context = ServerTls(pki.files()).current
    assert (context.minimum_version, context.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
    )
    assert context.options & ssl.OP_NO_RENEGOTIATION
    for cipher in context.get_ciphers():
        assert cipher["aead"]
        assert cipher["name"].startswith(("ECDHE-", "TLS_"))
        assert "GCM" in cipher["name"] or "CHACHA20" in cipher["name"]


@pytest.mark.parametrize(
    ("client_auth", "mode", "tickets"),
    [("none", ssl.CERT_NONE, 2), ("optional", ssl.CERT_OPTIONAL, 0), ("required", ssl.CERT_REQUIRED, 0)],
)
def test_client_certificates_exclude_tickets(pki, client_auth, mode, tickets):
    context = ServerTls(pki.files(client_auth)).current
    assert context.verify_mode is mode
    assert context.num_tickets == tickets
    assert bool(context.options & ssl.OP_NO_TICKET) is (tickets == 0)


def test_names_and_expiry_are_those_of_the_certificate(pki):
    pki.install(pki.issue(hosts=("Pond.example", "*.pond.example", "192.0.2.7")))
    tls = ServerTls(pki.files(), clock=FixedClock(NOW + timedelta(days=1)))
    assert tls.names == {"pond.example", "*.pond.example", "192.0.2.7"}
    assert tls.seconds_to_expiry() == pytest.approx((A_YEAR - timedelta(days=1)).total_seconds(), abs=1)


# -- what cannot be used --------------------------------------------------------------------------------------


def encrypted_key(pki):
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    pki.key.write_bytes(pem)


def chain_without_issuer(pki):
    stranger = issue_ca(NOW, "Another CA").certificate_pem()
    pki.certificate.write_bytes(pki.certificate.read_bytes() + stranger)


BAD_FILES = {
    "another key": (lambda pki: pki.key.write_bytes(pki.issue().key_pem()), "does not belong"),
    "an encrypted key": (encrypted_key, "is encrypted"),
    "no key": (lambda pki: pki.key.write_bytes(b"x"), "not a private key"),
    "no certificate": (lambda pki: pki.certificate.write_bytes(b"x"), "no certificate in PEM"),
    "an empty file": (lambda pki: pki.certificate.write_bytes(b""), "no certificate in PEM"),
    "half a file": (
        lambda pki: pki.certificate.write_bytes(pki.certificate.read_bytes()[:300]),
        "no certificate in PEM",
    ),
    "a missing file": (lambda pki: pki.key.unlink(), "cannot be read"),
    "a huge file": (lambda pki: pki.key.write_bytes(b" " * (FILE_BYTES_MAX + 1)), "too large"),
    "a foreign chain": (chain_without_issuer, "not the issuer"),
    "an expired certificate": (lambda pki: pki.install(pki.expired()), "expired at"),
    "a future certificate": (lambda pki: pki.install(pki.issue(now=NOW + A_YEAR)), "not valid before"),
    "no CA": (lambda pki: pki.ca_path.write_bytes(b"x"), "no CA certificate"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_at_the_start(pki, case):
    spoil, reason = BAD_FILES[case]
    spoil(pki)
    with pytest.raises(InvalidCertificate, match=reason):
        ServerTls(pki.files("required"))


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_new_file_keeps_the_current_certificate(pki, case, caplog):
    spoil, reason = BAD_FILES[case]
    tls = ServerTls(pki.files("required"))
    before = tls.current
    spoil(pki)
    assert tls.changed()
    assert not tls.reload()
    assert tls.current is before
    assert len(reasons(caplog)) == 1
    assert reason in reasons(caplog)[0]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_client_certificates_need_a_ca(pki):
    with pytest.raises(InvalidCertificate, match="no CA for them"):
        ServerTls(TlsFiles(pki.certificate, pki.key, None, "optional"))


def test_a_chain_in_order_is_accepted(pki):
    pki.certificate.write_bytes(pki.certificate.read_bytes() + pki.ca_path.read_bytes())
    ServerTls(pki.files())


def test_a_file_that_changes_while_it_is_read_is_not_used(pki, monkeypatch):
    tls = ServerTls(pki.files())
    before = tls.current
    pki.install(pki.issue())
    monkeypatch.setattr(ssl.SSLContext, "set_ciphers", lambda *_: pki.install(pki.issue()))
    assert not tls.reload()
    assert tls.current is before


# -- replacing ------------------------------------------------------------------------------------------------


def test_a_new_certificate_is_used_for_the_next_handshake(pki):
    tls = ServerTls(pki.files())
    first = serial_of(tls)
    assert not tls.changed()
    second = pki.install(pki.issue())
    assert tls.changed()
    assert serial_of(tls) == first
    assert tls.reload()
    assert serial_of(tls) == der(second) != first
    assert not tls.changed()


def test_a_new_client_ca_is_a_change(pki):
    tls = ServerTls(pki.files("required"))
    pki.ca_path.write_bytes(pki.ca_path.read_bytes() + issue_ca(NOW, "Next CA").certificate_pem())
    assert tls.changed()
    assert tls.reload_if_changed()
    assert len(tls.current.get_ca_certs()) == 2


def test_unchanged_files_are_not_loaded_again(pki):
    tls = ServerTls(pki.files())
    before = tls.current
    pki.certificate.write_bytes(pki.certificate.read_bytes())
    assert not tls.reload_if_changed()
    assert tls.current is before


def test_the_same_reason_is_logged_once_unless_asked(pki, caplog):
    tls = ServerTls(pki.files())
    pki.key.write_bytes(b"x")
    for _ in range(3):
        assert not tls.reload_if_changed()
    assert len(reasons(caplog)) == 1
    assert not tls.reload()
    assert len(reasons(caplog)) == 2
    pki.certificate.write_bytes(b"x")
    assert not tls.reload_if_changed()
    assert len(reasons(caplog)) == 3


def test_a_certificate_that_becomes_valid_is_used_then(pki):
    clock = FixedClock()
    tls = ServerTls(pki.files(), clock=clock)
    later = pki.install(pki.issue(now=NOW + timedelta(days=2)))
    assert not tls.reload_if_changed()
    clock.moment = NOW + timedelta(days=2)
    assert tls.reload_if_changed()
    assert serial_of(tls) == der(later)


# -- the reloader ---------------------------------------------------------------------------------------------


class CountedTls:
    def __init__(self):
        self.calls = asyncio.Queue()

    def reload(self):
        self.calls.put_nowait("reload")
        return True

    def reload_if_changed(self):
        self.calls.put_nowait("look")
        return False

    def take_refusal(self):
        return ""

    def on_reload(self):
        self.calls.put_nowait("in use")


@pytest.fixture
def on_loop(monkeypatch):
    """Work of threads runs here."""

    async def run(work, *arguments):
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", run)


async def test_the_reloader_looks_periodically(on_loop):
    tls = CountedTls()
    running = asyncio.create_task(TlsReloader(tls, interval_s=0, on_reload=tls.on_reload).run())
    assert [await tls.calls.get() for _ in range(3)] == ["look"] * 3
    running.cancel()


async def test_a_request_reloads_at_once(on_loop):
    tls = CountedTls()
    reloader = TlsReloader(tls, interval_s=3600, on_reload=tls.on_reload)
    running = asyncio.create_task(reloader.run())
    for _ in range(2):
        reloader.request()
        assert [await tls.calls.get(), await tls.calls.get()] == ["reload", "in use"]
    running.cancel()


def test_two_authorities_are_different(tmp_path):
    """The tests with a wrong CA would prove nothing otherwise."""
    (tmp_path / "other").mkdir()
    assert der(Pki(tmp_path).ca) != der(Pki(tmp_path / "other").ca)
