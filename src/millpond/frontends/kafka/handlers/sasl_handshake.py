"""SaslHandshake (17), v0-1: refused, because there is no authentication.

A client configured for SASL immediately gets an error code that it understands, instead of being
disconnected. SaslAuthenticate is not supported.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.protocol import ErrorCode
from millpond.protocol.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest)
async def sasl_handshake(call: KafkaCall, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
