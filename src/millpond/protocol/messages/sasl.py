"""SaslHandshake (17) and SaslAuthenticate (36): client authentication."""

from millpond.protocol.schema import (
    Bytes,
    Int16,
    Int64,
    Request,
    Response,
    String,
    field,
    request,
    response,
)


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Request):
    mechanism: String


@response(to=SaslHandshakeRequest)
class SaslHandshakeResponse(Response):
    error_code: Int16 = field(default=0)
    mechanisms: list[String]


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request):
    auth_bytes: Bytes


@response(to=SaslAuthenticateRequest)
class SaslAuthenticateResponse(Response):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field("1+", default=0)
