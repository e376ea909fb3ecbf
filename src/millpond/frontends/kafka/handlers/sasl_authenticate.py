"""SaslAuthenticate (36), v0-2: carries the messages of a SASL exchange.

All failures have the same error, 58, with the same text, after a delay; then the connection is closed. From v1 the
response says after how many milliseconds the client must authenticate again; 0 means never. Without a handshake before
it, and while security is off, the response is error 34.
"""

import asyncio

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.protocol import ErrorCode
from millpond.protocol.messages.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse


@handles(SaslAuthenticateRequest, rights=(), needs_none_because="the client has not authenticated yet")
async def sasl_authenticate(call: KafkaCall, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    result = await call.authentication.authenticate(bytes(request.auth_bytes))
    if result.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        await asyncio.sleep(call.services.limits.failed_login_delay_ms / 1000)  # slows guesses down
    return SaslAuthenticateResponse(
        error_code=result.code,
        error_message=result.message,
        auth_bytes=result.data,
        session_lifetime_ms=result.lifetime_ms,
    )
