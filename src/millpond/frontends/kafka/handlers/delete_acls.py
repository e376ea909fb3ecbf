"""DeleteAcls (31), v1-3: deletes the ACLs that filters select, at most 10,000, and returns those of each filter.

All filters are applied in one transaction. An unknown code refuses the whole request. While security is off, the
response is error 54.
"""

from millpond.frontends.kafka.acl_codes import SECURITY_OFF, deleted_acl, requested_filter
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import ALTER_CLUSTER
from millpond.model.errors import MillpondError
from millpond.protocol import ErrorCode
from millpond.protocol.messages.acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@handles(DeleteAclsRequest, rights=(ALTER_CLUSTER,))
async def delete_acls(call: KafkaCall, request: DeleteAclsRequest) -> DeleteAclsResponse:
    if not call.services.security.enabled:
        return _all_refused(request, ErrorCode.SECURITY_DISABLED, SECURITY_OFF)
    try:
        call.require(ALTER_CLUSTER)
        filters = [requested_filter(each) for each in request.filters]
        deleted = await call.services.security_administration.delete_acls(call.access, filters)
    except MillpondError as error:
        return _all_refused(request, code_of(error), str(error))
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(matching_acls=[deleted_acl(acl) for acl in acls]) for acls in deleted
        ]
    )


def _all_refused(request: DeleteAclsRequest, code: ErrorCode, message: str) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))
