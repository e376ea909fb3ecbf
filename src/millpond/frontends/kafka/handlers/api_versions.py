"""ApiVersions (18), v0-4: lists the supported APIs and versions, generated from the handler registry.

An unknown version gets a v0 body with UNSUPPORTED_VERSION and the supported versions of ApiVersions, and the client
sends the request again (KIP-511). Produce is advertised from 0 although v0-2 are refused: librdkafka compresses
only then. `transaction.version` 2 tells Java clients that EndTxn v5 increases the epoch (KIP-890), `group.version` 1
that there are groups of the consumer protocol (KIP-848), `share.version` 1 that there are share groups (KIP-932).
Before v4 features with minimum version 0 are left out of the supported features, because old clients cannot handle
them.
"""

import re

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import HANDLERS, handles
from millpond.protocol import ErrorCode
from millpond.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)
from millpond.protocol.messages.sasl import SaslAuthenticateRequest

SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FEATURES_SINCE = 3
FEATURES_FROM_ZERO_SINCE = 4
FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""The versions in force, each of which is also the highest that is supported."""


@handles(ApiVersionsRequest, rights=(), needs_none_because="clients ask before they authenticate")
async def api_versions(call: KafkaCall, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= FEATURES_SINCE and not _names_are_legal(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    supported = [
        SupportedFeature(name=name, min_version=0, max_version=version) for name, version in FEATURES.items()
    ]
    return ApiVersionsResponse(
        api_keys=advertised(has_security=call.services.security.enabled),
        supported_features=supported if call.version >= FEATURES_FROM_ZERO_SINCE else [],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeature(name=name, max_version_level=version, min_version_level=version)
            for name, version in FEATURES.items()
        ],
    )


def advertised(*, has_security: bool) -> list[ApiVersion]:
    """Without security there is nothing to authenticate for."""
    return [
        ApiVersion(api_key=key, min_version=handler.advertised.first, max_version=handler.advertised.last)
        for key, handler in sorted(HANDLERS.items())
        if has_security or handler.request is not SaslAuthenticateRequest
    ]


def unsupported_version() -> ApiVersionsResponse:
    ours = HANDLERS[ApiVersionsRequest.api_key].advertised
    known = ApiVersion(api_key=ApiVersionsRequest.api_key, min_version=ours.first, max_version=ours.last)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])


def _names_are_legal(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(SOFTWARE.fullmatch(name) for name in names)
