"""ACLs and filters of them, from and to the codes of Kafka's messages. Shared by the APIs 29 to 31."""

from millpond.model.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType
from millpond.model.errors import InvalidRequest
from millpond.protocol.messages.acls import (
    AclCreation,
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DescribeAclsRequest,
)

SECURITY_OFF = "Security is off: there are no ACLs, and every client may do everything."


def requested_acl(creation: AclCreation) -> Acl:
    """Raises `InvalidRequest` for a code that is unknown. Whether the ACL is valid is for `check_acl` to say."""
    try:
        acl = Acl(
            ResourceType(creation.resource_type),
            PatternType(creation.resource_pattern_type),
            creation.resource_name,
            creation.principal,
            creation.host,
            AclOperation(creation.operation),
            Permission(creation.permission_type),
        )
    except ValueError as error:
        raise InvalidRequest(reason=str(error)) from error
    _check_codes(acl)
    return acl


def requested_filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Raises `InvalidRequest` for a code that is unknown."""
    try:
        found = AclFilter(
            ResourceType(asked.resource_type_filter),
            PatternType(asked.pattern_type_filter),
            asked.resource_name_filter,
            asked.principal_filter,
            asked.host_filter,
            AclOperation(asked.operation),
            Permission(asked.permission_type),
        )
    except ValueError as error:
        raise InvalidRequest(reason=str(error)) from error
    _check_codes(found)
    return found


def _check_codes(given: Acl | AclFilter) -> None:
    if 0 in (given.resource_type, given.pattern_type, given.operation, given.permission):
        raise InvalidRequest(reason="0 stands for an unknown type, pattern, operation or permission")


def deleted_acl(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
