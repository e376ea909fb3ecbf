"""DescribeAcls (29), v1-3: lists the ACLs that a filter selects, grouped by what they are about.

Null selects any name, principal or host; the pattern type MATCH selects all patterns that cover a name. A filter with
an unknown code is refused. While security is off, the response is error 54.
"""

from itertools import groupby

from millpond.frontends.kafka.acl_codes import SECURITY_OFF, requested_filter
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_CLUSTER
from millpond.model.acls import Acl
from millpond.model.errors import MillpondError
from millpond.protocol import ErrorCode
from millpond.protocol.messages.acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handles(DescribeAclsRequest, rights=(DESCRIBE_CLUSTER,))
async def describe_acls(call: KafkaCall, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not call.services.security.enabled:
        code = ErrorCode.SECURITY_DISABLED
        return DescribeAclsResponse(error_code=code, error_message=SECURITY_OFF, resources=[])
    try:
        call.require(DESCRIBE_CLUSTER)
        found = call.services.security_administration.list_acls(call.access, requested_filter(request))
    except MillpondError as error:
        return DescribeAclsResponse(error_code=code_of(error), error_message=str(error), resources=[])
    return DescribeAclsResponse(
        resources=[_resource(list(acls)) for _, acls in groupby(sorted(found), key=lambda acl: acl[:3])]
    )


def _resource(acls: list[Acl]) -> DescribeAclsResource:
    """All are about the same pattern."""
    return DescribeAclsResource(
        resource_type=acls[0].resource_type,
        resource_name=acls[0].name,
        pattern_type=acls[0].pattern_type,
        acls=[
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ],
    )
