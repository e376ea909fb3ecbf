"""The JSON types and forms of sessions."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from millpond.frontends.web.schemas import RequestStruct

LocalPath = Annotated[str, Meta(max_length=2_000)]
CookiePath = Annotated[str, Meta(max_length=1_000)]
"""A path that is kept in a cookie, which has room for 4,096 characters."""
Secret = Annotated[str, Meta(min_length=1, max_length=20_000)]


class LoginJson(RequestStruct, frozen=True):
    """Either `username` and `password`, or `token`: an API token or a JWT."""

    username: Annotated[str, Meta(max_length=1_000)] | UnsetType = UNSET
    password: Secret | UnsetType = UNSET
    token: Secret | UnsetType = UNSET

    def __repr__(self) -> str:
        return "LoginJson()"


class LoginForm(RequestStruct, frozen=True):
    """`next` is the path of the page to show after the login, `failed` the one if it fails; without it, the response is
    the error."""

    username: Annotated[str, Meta(max_length=1_000)] = ""
    password: Annotated[str, Meta(max_length=20_000)] = ""
    next: LocalPath = "/"
    failed: LocalPath = ""

    def __repr__(self) -> str:
        return "LoginForm()"


class LogoutForm(RequestStruct, frozen=True):
    """`csrf_token` is that of `GET /session`; `next` is the path of the page to show afterwards."""

    csrf_token: Annotated[str, Meta(max_length=100)] = ""
    next: LocalPath = "/"

    def __repr__(self) -> str:
        return "LogoutForm()"


class OidcQuery(RequestStruct, frozen=True):
    next: CookiePath = "/"
    failed: CookiePath = ""


class OidcCallbackQuery(Struct, frozen=True):
    """What an identity provider adds to the URL; other parameters are ignored."""

    state: Annotated[str, Meta(max_length=1_000)] = ""
    code: Annotated[str, Meta(max_length=4_096)] = ""
    error: Annotated[str, Meta(max_length=1_000)] = ""
    iss: Annotated[str, Meta(max_length=2_000)] | UnsetType = UNSET

    def __repr__(self) -> str:
        return "OidcCallbackQuery()"


class RightsJson(Struct, frozen=True):
    """Operations that the client may do with the cluster, and with some topics and groups."""

    super_user: bool
    cluster: list[str]
    topics: list[str]
    groups: list[str]


class LoginMethodsJson(Struct, frozen=True, omit_defaults=True):
    """How a browser can log in. `oidc` is the path that begins a login at the identity provider."""

    password: bool
    token: bool
    oidc: str | UnsetType = UNSET


class SessionJson(Struct, frozen=True, omit_defaults=True):
    """Without `principal` the client has not authenticated. The last three belong to a session: what its forms must
    carry, and when it ends."""

    security: bool
    login: LoginMethodsJson
    principal: str | UnsetType = UNSET
    method: str | UnsetType = UNSET
    rights: RightsJson | UnsetType = UNSET
    csrf_token: str | UnsetType = UNSET
    expires_at_ms: int | UnsetType = UNSET
    idle_until_ms: int | UnsetType = UNSET

    def __repr__(self) -> str:
        return f"SessionJson(principal={self.principal!r})"
