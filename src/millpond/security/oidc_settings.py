"""How browsers log in at an identity provider: what the settings say, and whether it is complete."""

from typing import Final, NamedTuple

from millpond.model.errors import InvalidSettings
from millpond.security.https_client import is_https

OPENID: Final = "openid"


class OidcSettings(NamedTuple):
    issuer: str
    client_id: str
    client_secret: str
    scopes: str = OPENID
    subject_claim: str = "sub"
    redirect_url: str = ""

    def __repr__(self) -> str:
        return f"OidcSettings(issuer={self.issuer!r}, client_id={self.client_id!r})"


def check_oidc(settings: OidcSettings) -> None:
    """Raises `InvalidSettings`. The text never has the client's secret."""
    needed = {"oidc_issuer": settings.issuer, "oidc_client_id": settings.client_id}
    for name, value in (needed | {"oidc_client_secret": settings.client_secret}).items():
        if not value:
            reason = "login with OIDC needs oidc_issuer, oidc_client_id and oidc_client_secret"
            raise InvalidSettings(name=name, value="", reason=reason)
    if not is_https(settings.issuer) or "?" in settings.issuer or "#" in settings.issuer:
        reason = "expected an https URL without a query"
        raise InvalidSettings(name="oidc_issuer", value=settings.issuer, reason=reason)
    if settings.redirect_url and not settings.redirect_url.startswith(("https://", "http://")):
        reason = "expected the URL of /session/oidc/callback, as browsers reach it"
        raise InvalidSettings(name="oidc_redirect_url", value=settings.redirect_url, reason=reason)
    if OPENID not in settings.scopes.split():
        reason = f"the scope {OPENID} is needed"
        raise InvalidSettings(name="oidc_scopes", value=settings.scopes, reason=reason)


def checked_oidc(settings: OidcSettings) -> OidcSettings | None:
    """None if nothing of it is set. Raises `InvalidSettings` if it is incomplete."""
    if not (settings.issuer or settings.client_id or settings.client_secret or settings.redirect_url):
        return None
    check_oidc(settings)
    return settings
