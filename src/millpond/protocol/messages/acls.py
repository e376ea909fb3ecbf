"""DescribeAcls (29), CreateAcls (30) and DeleteAcls (31): access control lists."""

from millpond.protocol.schema import (
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

LITERAL = 3


@request(key=29, versions="1-3", flexible="2+")
class DescribeAclsRequest(Request):
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=LITERAL)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@struct
class AclDescription(Struct):
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DescribeAclsResource(Struct):
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=LITERAL)
    acls: list[AclDescription]


@response(to=DescribeAclsRequest)
class DescribeAclsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    resources: list[DescribeAclsResource]


@struct
class AclCreation(Struct):
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = field(default=LITERAL)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@request(key=30, versions="1-3", flexible="2+")
class CreateAclsRequest(Request):
    creations: list[AclCreation]


@struct
class AclCreationResult(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@response(to=CreateAclsRequest)
class CreateAclsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    results: list[AclCreationResult]


@struct
class DeleteAclsFilter(Struct):
    resource_type_filter: Int8
    resource_name_filter: String | None
    pattern_type_filter: Int8 = field(default=LITERAL)
    principal_filter: String | None
    host_filter: String | None
    operation: Int8
    permission_type: Int8


@request(key=31, versions="1-3", flexible="2+")
class DeleteAclsRequest(Request):
    filters: list[DeleteAclsFilter]


@struct
class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=LITERAL)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@struct
class DeleteAclsFilterResult(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    matching_acls: list[DeleteAclsMatchingAcl]


@response(to=DeleteAclsRequest)
class DeleteAclsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    filter_results: list[DeleteAclsFilterResult]
