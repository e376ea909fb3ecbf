"""ApiVersions (18): the first request of a connection, sent before authentication.

Its response always has response header v0, so that a client can read it whatever version it requested
(KIP-511). The response to an unknown version has a version 0 body.
"""

from millpond.protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)


@request(key=18, versions="0-4", flexible="3+")
class ApiVersionsRequest(Request):
    client_software_name: String = field("3+", default="")
    client_software_version: String = field("3+", default="")


@struct
class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


@struct
class SupportedFeature(Struct):
    name: String
    min_version: Int16
    max_version: Int16


@struct
class FinalizedFeature(Struct):
    name: String
    max_version_level: Int16
    min_version_level: Int16


@response(to=ApiVersionsRequest)
class ApiVersionsResponse(Response):
    error_code: Int16 = field(default=0)
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0)
    supported_features: list[SupportedFeature] = field("3+", tag=0, factory=list)
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1)
    finalized_features: list[FinalizedFeature] = field("3+", tag=2, factory=list)
    zk_migration_ready: Bool = field("3+", tag=3, default=False)
