"""CreateAcls (30), v1-3: creates ACLs. Each has its own result, and one that exists already succeeds.

An ACL that could only be a filter, such as one of the pattern type MATCH, gets error 42. An unknown code refuses the
whole request. While security is off, the response is error 54.
"""

from millpond.frontends.kafka.acl_codes import SECURITY_OFF, requested_acl
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import ALTER_CLUSTER
from millpond.model.errors import InvalidAcl, MillpondError
from millpond.protocol import ErrorCode
from millpond.protocol.messages.acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handles(CreateAclsRequest, rights=(ALTER_CLUSTER,))
async def create_acls(call: KafkaCall, request: CreateAclsRequest) -> CreateAclsResponse:
    if not call.services.security.enabled:
        return _all_refused(request, ErrorCode.SECURITY_DISABLED, SECURITY_OFF)
    try:
        call.require(ALTER_CLUSTER)
        acls = [requested_acl(each) for each in request.creations]
        errors = await call.services.security_administration.create_acls(call.access, acls)
    except MillpondError as error:
        return _all_refused(request, code_of(error), str(error))
    return CreateAclsResponse(results=[_result(error) for error in errors])


def _all_refused(request: CreateAclsRequest, code: ErrorCode, message: str) -> CreateAclsResponse:
    result = AclCreationResult(error_code=code, error_message=message)
    return CreateAclsResponse(results=[result] * len(request.creations))


def _result(error: InvalidAcl | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult()
    return AclCreationResult(error_code=code_of(error), error_message=str(error))
