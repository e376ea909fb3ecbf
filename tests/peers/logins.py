"""A broker with TLS, users and ACLs, and logins that are right or wrong in one respect, for clients in other languages.

Each login is a few values that every client understands: paths of certificates, a mechanism, a user, a password, a
token. What a client saw with a login is {"sent": "yes" or an error, "read": …, "forbidden": …}.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.clients.process import BrokerProcess
from tests.clients.secured_clients import PASSWORD, start
from tests.tls import A_YEAR, AN_HOUR, NOW, Pki
from tests.unit.security import issuer

from millpond.security.development_ca import issue_certificate

USER: Final = "alice"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROOFS: Final = (*MECHANISMS, "OAUTHBEARER", "mTLS")
TOKEN_LIFETIME_S: Final = 3_600
Login = dict[str, str]


class Secured(NamedTuple):
    broker: BrokerProcess
    folder: Path
    logins: dict[str, Login]

    @property
    def address(self) -> str:
        return self.broker.address

    def file(self, *, names: tuple[str, ...] = (), token_urls: bool = False) -> str:
        """A file with these logins, or all. With `token_urls` a token is given as the URL of its file."""
        found = {name: login for name, login in self.logins.items() if not names or name in names}
        if token_urls:
            found = {name: self._with_token_url(name, login) for name, login in found.items()}
        path = self.folder / "logins.json"
        path.write_text(json.dumps(found))
        return str(path)

    def _with_token_url(self, name: str, login: Login) -> Login:
        if "token" not in login:
            return login
        path = self.folder / f"{name.replace(' ', '-')}.token"
        path.write_text(login["token"])
        return {**login, "token": path.as_uri()}


@contextmanager
def secured(folder: Path, **settings: str) -> Iterator[Secured]:
    pki = Pki(folder)
    keys = folder / "jwks.json"
    keys.write_bytes(issuer.jwks())
    oauth = {
        "oauth_issuer": issuer.ISSUER,
        "oauth_audience": issuer.AUDIENCE,
        "oauth_jwks": str(keys),
        "sasl_mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
    }
    rules = {"principal_mapping_rules": "RULE:^CN=(.*)$/$1/"}
    broker = start(folder, **pki.settings("optional"), **oauth, **rules, **settings)
    try:
        yield Secured(broker, folder, _logins(folder, pki))
    finally:
        broker.stop()


def _logins(folder: Path, pki: Pki) -> dict[str, Login]:
    ca = {"ca": str(pki.ca_path)}
    found = {}
    for mechanism in MECHANISMS:
        named = {**ca, "mechanism": mechanism, "user": USER}
        found[mechanism] = {**named, "password": PASSWORD}
        found[f"{mechanism} wrong"] = {**named, "password": "wrong"}
    bearer = {**ca, "mechanism": "OAUTHBEARER"}
    found["OAUTHBEARER"] = {**bearer, "token": _token()}
    found["OAUTHBEARER wrong"] = {**bearer, "token": _token(aud="another audience")}
    found["OAUTHBEARER expired"] = {**bearer, "token": _token(lifetime_s=-TOKEN_LIFETIME_S)}
    other = folder / "other"
    other.mkdir()
    stranger = Pki(other)
    found["mTLS"] = {**ca, **_certificate(folder / "right", pki)}
    found["mTLS wrong"] = {**ca, **_certificate(folder / "wrong", stranger)}
    found["mTLS expired"] = {**ca, **_certificate(folder / "expired", pki, is_expired=True)}
    found["TLS without a login"] = ca
    found["TLS with another CA"] = {**found["SCRAM-SHA-512"], "ca": str(stranger.ca_path)}
    return found


def _token(lifetime_s: int = TOKEN_LIFETIME_S, **claims: str) -> str:
    now = int(time.time())
    issued = now + min(lifetime_s, 0) - TOKEN_LIFETIME_S
    return issuer.token(iat=issued, exp=now + lifetime_s, scope="all", **claims)


def _certificate(stem: Path, pki: Pki, *, is_expired: bool = False) -> Login:
    begun, lifetime = (NOW - A_YEAR, AN_HOUR) if is_expired else (NOW, A_YEAR)
    issued = issue_certificate(pki.ca, name=USER, now=begun, lifetime=lifetime)
    certificate, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
    certificate.write_bytes(issued.certificate_pem())
    key.write_bytes(issued.key_pem())
    return {"certificate": str(certificate), "key": str(key)}


def served(seen: Any) -> bool:
    """Whether the client sent and read what it may, and was refused what it may not."""
    return bool(seen["sent"] == "yes" and seen["read"] is True and "authoriz" in seen["forbidden"].lower())
