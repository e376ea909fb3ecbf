"""SaslHandshake (17), v0-1: starts the authentication of a connection with a mechanism, and lists the supported ones.

v0 announces tokens without Kafka's headers, which are not supported: it is refused like an unknown mechanism, with
error 33, and the connection is closed. While security is off, the response is error 34: a client that is configured
for SASL learns the reason, instead of being disconnected. An authenticated client may send it again only to renew a
session that has an end, at most once per second.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.protocol.messages.sasl import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, rights=(), needs_none_because="the client has not authenticated yet")
async def sasl_handshake(call: KafkaCall, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    result = call.authentication.handshake(request.mechanism, call.version)
    return SaslHandshakeResponse(error_code=result.code, mechanisms=list(result.mechanisms))
