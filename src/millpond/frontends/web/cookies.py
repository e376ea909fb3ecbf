"""The cookies of a browser: the session, and the state of a login at an identity provider.

With TLS their names begin with `__Host-`, which a browser accepts only from the host itself, over https, for all paths.
Without TLS, which a broker with security has on loopback only, they have neither that prefix nor `Secure`.
"""

from typing import Final

from starlette.datastructures import Headers

SESSION: Final = "millpond-session"
LOGIN: Final = "millpond-login"
STRICT: Final = "Strict"
LAX: Final = "Lax"
"""Also sent when a page of another site sends the browser here, as an identity provider does."""
PREFIX: Final = "__Host-"


def name_of(name: str, *, secure: bool) -> str:
    return PREFIX + name if secure else name


def values_of(headers: Headers, name: str, *, secure: bool) -> list[str]:
    """All values of a cookie. A browser sends one."""
    wanted = name_of(name, secure=secure)
    pairs = (each.strip().partition("=") for value in headers.getlist("cookie") for each in value.split(";"))
    return [value for found, _, value in pairs if found == wanted]


def set_cookie(
    name: str, value: str, *, secure: bool, same_site: str = STRICT, max_age_s: int | None = None
) -> tuple[bytes, bytes]:
    """The header that sets a cookie, until the browser is closed or for `max_age_s`."""
    parts = [f"{name_of(name, secure=secure)}={value}", "Path=/", "HttpOnly", f"SameSite={same_site}"]
    if secure:
        parts.append("Secure")
    if max_age_s is not None:
        parts.append(f"Max-Age={max_age_s}")
    return b"set-cookie", "; ".join(parts).encode("latin-1")


def delete_cookie(name: str, *, secure: bool, same_site: str = STRICT) -> tuple[bytes, bytes]:
    return set_cookie(name, "", secure=secure, same_site=same_site, max_age_s=0)
