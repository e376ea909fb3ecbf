"""DescribeConfigs (32), AlterConfigs (33), IncrementalAlterConfigs (44), ListConfigResources (74): configs of topics,
groups and brokers."""

from typing import Final

from millpond.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)

CLIENT_METRICS: Final = 16
"""The only type of resources that version 0 of ListConfigResources lists."""


@struct
class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None = field(default=None)


@request(key=32, versions="1-4", flexible="4+")
class DescribeConfigsRequest(Request):
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = field("1+", default=False)
    include_documentation: Bool = field("3+", default=False)


@struct
class DescribeConfigsSynonym(Struct):
    name: String
    value: String | None
    source: Int8


@struct
class DescribeConfigsResourceResult(Struct):
    name: String
    value: String | None
    read_only: Bool = field(default=False)
    config_source: Int8 = field("1+", default=-1)
    is_sensitive: Bool = field(default=False)
    synonyms: list[DescribeConfigsSynonym] = field("1+", factory=list)
    config_type: Int8 = field("3+", default=0)
    documentation: String | None = field("3+", default=None)


@struct
class DescribeConfigsResult(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


@response(to=DescribeConfigsRequest)
class DescribeConfigsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    results: list[DescribeConfigsResult]


@struct
class AlterableConfig(Struct):
    name: String
    value: String | None


@struct
class AlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@request(key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest(Request):
    resources: list[AlterConfigsResource]
    validate_only: Bool = field(default=False)


@struct
class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    resource_type: Int8
    resource_name: String


@response(to=AlterConfigsRequest)
class AlterConfigsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]


@struct
class IncrementalAlterableConfig(Struct):
    name: String
    config_operation: Int8
    value: String | None


@struct
class IncrementalAlterConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configs: list[IncrementalAlterableConfig]


@request(key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest(Request):
    resources: list[IncrementalAlterConfigsResource]
    validate_only: Bool = field(default=False)


@response(to=IncrementalAlterConfigsRequest)
class IncrementalAlterConfigsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    responses: list[AlterConfigsResourceResponse]


@request(key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest(Request):
    resource_types: list[Int8] = field("1+", factory=list)


@struct
class ListedConfigResource(Struct):
    resource_name: String
    resource_type: Int8 = field("1+", default=CLIENT_METRICS)


@response(to=ListConfigResourcesRequest)
class ListConfigResourcesResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    config_resources: list[ListedConfigResource]
