"""Sessions of browsers: log in, with a password or at an identity provider, see who you are, log out.

Forms get redirects, so that pages work without JavaScript; they lead to paths of this broker only.
"""

import html
import re
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET
from starlette.datastructures import Headers

from millpond.frontends.web.convert import convert_parameters, decode_json
from millpond.frontends.web.cookies import LAX, LOGIN, SESSION, delete_cookie, set_cookie, values_of
from millpond.frontends.web.errors import refusal_of
from millpond.frontends.web.guarding import proof_of
from millpond.frontends.web.operations import (
    FORM,
    JSON,
    NO_BODY,
    HttpCall,
    NonJsonContent,
    NoParameters,
    RawResponse,
    RequestBody,
    operation,
)
from millpond.frontends.web.session_schemas import (
    LoginForm,
    LoginJson,
    LoginMethodsJson,
    LogoutForm,
    OidcCallbackQuery,
    OidcQuery,
    RightsJson,
    SessionJson,
)
from millpond.frontends.web.site import Site
from millpond.model.acls import OPERATIONS, AclOperation, ResourceType
from millpond.model.errors import AuthenticationFailed, InvalidRequest, MillpondError
from millpond.security import Access
from millpond.security.identity import ANONYMOUS_IDENTITY, SCRAM
from millpond.security.requirements import ANYONE, PUBLIC
from millpond.security.sessions import OpenedSession, idle_until_ms
from millpond.service import OidcCallback

OIDC_PATH: Final = "/session/oidc"
CALLBACK_PATH: Final = "/session/oidc/callback"
LOGIN_S: Final = 600
FORM_FIELDS_MAX: Final = 20
SEE_OTHER: Final = 303
NOT_STORED: Final = (b"cache-control", b"no-store")
_LOCAL_PATH: Final = re.compile(r"/(?:[!-.0-\[\]-~][!-\[\]-~]*)?")
"""A path of this broker: a second slash, or a backslash, which browsers read as one, would begin a host name."""
_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Millpond</title>
<meta http-equiv="refresh" content="0; url={path}"></head>
<body><a href="{path}">Continue</a></body></html>
"""
_PAGE_HEADERS: Final = (
    NOT_STORED,
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)


# -- bodies ---------------------------------------------------------------------------------------------------


def _decode_form(content: bytes, struct: type[Any]) -> Any:
    try:
        pairs = parse_qsl(
            content.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=FORM_FIELDS_MAX,
            errors="strict",
        )
    except ValueError:  # also UnicodeError
        raise InvalidRequest(reason="the form cannot be read") from None
    if len(dict(pairs)) < len(pairs):
        raise InvalidRequest(reason="the form has the same name twice")
    return convert_parameters(dict(pairs), struct, "form")


_LOGIN_DECODER: Final = msgspec.json.Decoder(LoginJson)


def _decode_login(_: Site, content_type: str, __: Headers, content: bytes) -> LoginJson | LoginForm:
    if content_type == FORM:
        form: LoginForm = _decode_form(content, LoginForm)
        return form
    return decode_json(_LOGIN_DECODER, content)


LOGIN_BODY: Final[RequestBody[LoginJson | LoginForm]] = RequestBody(
    {JSON: [LoginJson], FORM: [LoginForm]}, _decode_login
)
LOGOUT_BODY: Final[RequestBody[LogoutForm]] = RequestBody(
    {FORM: [LogoutForm]}, lambda _, __, ___, content: _decode_form(content, LogoutForm), required=False
)


# -- sessions -------------------------------------------------------------------------------------------------


@operation(
    "GET",
    "/session",
    rights=ANYONE,
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: SessionJson},
    error_statuses=(401,),
)
async def show_session(call: HttpCall[NoParameters, NoParameters, None]) -> RawResponse:
    """Show who the client is, what it may do, and how it can log in. The response deletes the cookie
    of a session that has ended."""
    site, shown = call.site, await _shown(call.site, call.access)
    headers = [NOT_STORED]
    if not call.access.identity.session and values_of(call.headers, SESSION, secure=site.is_secure):
        headers.append(delete_cookie(SESSION, secure=site.is_secure))
    return RawResponse(msgspec.json.encode(shown), headers=headers)


@operation(
    "POST",
    "/session",
    rights=PUBLIC,
    parameters=NoParameters,
    query=NoParameters,
    body=LOGIN_BODY,
    returns={200: SessionJson, 303: None},
    error_statuses=(401,),
)
async def log_in(call: HttpCall[NoParameters, NoParameters, LoginJson | LoginForm]) -> RawResponse:
    """Log in with a password or a token, and get the cookie of a new session. A form is redirected."""
    if isinstance(call.body, LoginForm):
        return await _log_in_by_form(call, call.body)
    opened = await _opened(call, call.body)
    access = await _access_of(call, opened)
    headers = [NOT_STORED, _session_cookie(call.site, opened)]
    return RawResponse(msgspec.json.encode(await _shown(call.site, access)), headers=headers)


async def _opened(call: HttpCall[Any, Any, Any], body: LoginJson) -> OpenedSession:
    client, login = proof_of(call.site, call.scope, call.headers), call.site.services.login
    if body.token is not UNSET:
        if body.username is not UNSET or body.password is not UNSET:
            raise InvalidRequest(reason="send either username and password, or token")
        return await login.with_token(client, body.token)
    if body.username is UNSET or body.password is UNSET:
        raise InvalidRequest(reason="send username and password, or token")
    return await login.with_password(client, body.username, body.password)


async def _log_in_by_form(call: HttpCall[Any, Any, Any], form: LoginForm) -> RawResponse:
    next_path, failed_path = local_path(form.next), local_path(form.failed) if form.failed else ""
    client = proof_of(call.site, call.scope, call.headers)
    try:
        opened = await call.site.services.login.with_password(client, form.username, form.password)
    except AuthenticationFailed:
        if not failed_path:
            raise
        return _redirect(failed_path)
    return _redirect(next_path, _session_cookie(call.site, opened))


@operation(
    "DELETE",
    "/session",
    rights=ANYONE,
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={204: None},
    error_statuses=(401,),
)
async def log_out(call: HttpCall[NoParameters, NoParameters, None]) -> RawResponse:
    """Log out: the session ends on every broker, and the browser forgets its cookie."""
    await call.site.services.login.log_out(call.access)
    return RawResponse(b"", status=204, headers=[delete_cookie(SESSION, secure=call.site.is_secure)])


@operation(
    "POST",
    "/session/logout",
    rights=ANYONE,
    parameters=NoParameters,
    query=NoParameters,
    body=LOGOUT_BODY,
    returns={303: None},
    error_statuses=(401,),
)
async def log_out_by_form(call: HttpCall[NoParameters, NoParameters, LogoutForm]) -> RawResponse:
    """Log out with a form, which has the token of the session, and show another page."""
    next_path = local_path(call.body.next)
    await call.site.services.login.log_out(call.access)
    return _redirect(next_path, delete_cookie(SESSION, secure=call.site.is_secure))


# -- at an identity provider ----------------------------------------------------------------------------------


@operation(
    "GET",
    OIDC_PATH,
    rights=PUBLIC,
    parameters=NoParameters,
    query=OidcQuery,
    body=NO_BODY,
    returns={303: None},
)
async def begin_oidc_login(call: HttpCall[NoParameters, OidcQuery, None]) -> RawResponse:
    """Send the browser to the identity provider of `oidc_issuer`. The login must be finished within ten minutes."""
    next_path = local_path(call.query.next)
    failed_path = local_path(call.query.failed) if call.query.failed else ""
    client = proof_of(call.site, call.scope, call.headers)
    url, state = await call.site.services.login.begin_oidc(
        client, _callback_url(call.site), next_path=next_path, failed_path=failed_path
    )
    cookie = set_cookie(LOGIN, state, secure=call.site.is_secure, same_site=LAX, max_age_s=LOGIN_S)
    return _redirect(url, cookie)


@operation(
    "GET",
    CALLBACK_PATH,
    rights=PUBLIC,
    parameters=NoParameters,
    query=OidcCallbackQuery,
    body=NO_BODY,
    returns={200: NonJsonContent(["text/html"], "A page that shows the path of the login."), 303: None},
    error_statuses=(401,),
)
async def finish_oidc_login(call: HttpCall[NoParameters, OidcCallbackQuery, None]) -> RawResponse:
    """Finish a login: the identity provider sends the browser here. The response is a page and no redirect, because a
    browser that comes from another site does not send a cookie with `SameSite=Strict` on a redirect."""
    login, query = call.site.services.login, call.query
    if not login.has_oidc:
        raise InvalidRequest(reason="login with OIDC is not configured; set oidc_issuer")
    states = values_of(call.headers, LOGIN, secure=call.site.is_secure)
    begun = login.begun_oidc(states[0]) if len(states) == 1 else None
    forgotten = []
    if begun is not None and begun.has_state(query.state):  # another page cannot make the browser forget it
        forgotten.append(delete_cookie(LOGIN, secure=call.site.is_secure, same_site=LAX))
    client = proof_of(call.site, call.scope, call.headers)
    callback = OidcCallback(query.state, query.code, query.error, None if query.iss is UNSET else query.iss)
    try:
        opened = await login.finish_oidc(client, _callback_url(call.site), begun, callback)
    except MillpondError as error:
        if begun is None or not begun.failed:
            raise refusal_of(error, headers=forgotten) from None
        return _redirect(begun.failed, *forgotten)
    assert begun is not None, "its callback was accepted"
    page = _PAGE.format(path=html.escape(begun.next)).encode()
    headers = (*_PAGE_HEADERS, *forgotten, _session_cookie(call.site, opened))
    return RawResponse(page, "text/html; charset=utf-8", headers=headers)


def _callback_url(site: Site) -> str:
    return f"{site.scheme}://{site.services.listeners['http']}{CALLBACK_PATH}"


# -- internal -------------------------------------------------------------------------------------------------


def local_path(path: str) -> str:
    """Raises `InvalidRequest` unless it is a path of this broker."""
    if _LOCAL_PATH.fullmatch(path) is None:
        raise InvalidRequest(reason="a redirect leads to a path of this broker, such as /topics")
    return path


def _redirect(location: str, *headers: tuple[bytes, bytes]) -> RawResponse:
    return RawResponse(
        b"", "text/plain", status=SEE_OTHER, headers=[(b"location", location.encode()), NOT_STORED, *headers]
    )


def _session_cookie(site: Site, opened: OpenedSession) -> tuple[bytes, bytes]:
    return set_cookie(SESSION, opened.id, secure=site.is_secure)


async def _access_of(call: HttpCall[Any, Any, Any], opened: OpenedSession) -> Access:
    client = proof_of(call.site, call.scope, call.headers)
    return await call.site.services.gate.admit(client._replace(authorization=(), sessions=(opened.id,)))


async def _shown(site: Site, access: Access) -> SessionJson:
    login, identity = site.services.login, access.identity
    methods = LoginMethodsJson(
        password=login.is_on, token=login.is_on, oidc=OIDC_PATH if login.has_oidc else UNSET
    )
    if login.is_on and identity == ANONYMOUS_IDENTITY:
        return SessionJson(True, methods)
    shown = SessionJson(
        login.is_on,
        methods,
        principal=str(access.principal),
        method=_method(identity.credential) if login.is_on else UNSET,
        rights=_rights(site, access),
    )
    if not identity.session:
        return shown
    session = await login.session(identity.session)
    return msgspec.structs.replace(
        shown,
        csrf_token=login.form_token(identity.session),
        expires_at_ms=session.expires_at_ms,
        idle_until_ms=idle_until_ms(session),
    )


def _method(credential: str) -> str:
    kind = credential.partition(":")[0]
    return "password" if kind == SCRAM else kind


def _rights(site: Site, access: Access) -> RightsJson:
    def somewhere(resource: ResourceType) -> list[str]:
        return [
            _name(each) for each in sorted(OPERATIONS[resource]) if access.allows_somewhere(each, resource)
        ]

    cluster = [
        _name(each)
        for each in sorted(OPERATIONS[ResourceType.CLUSTER])
        if access.allows(each, ResourceType.CLUSTER)
    ]
    return RightsJson(
        not site.services.login.is_on or site.services.login.is_super_user(access),
        cluster,
        somewhere(ResourceType.TOPIC),
        somewhere(ResourceType.GROUP),
    )


def _name(operation: AclOperation) -> str:
    return operation.name.lower()
