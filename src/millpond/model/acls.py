"""Access control lists in Kafka's model and with Kafka's codes: an ACL allows or denies one operation, on the resources
that a pattern names, to one principal from one host.

`security/rights.py` decides by them.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from millpond.model.errors import InvalidAcl
from millpond.model.principals import USER

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name that a resource of type CLUSTER has."""
WILDCARD: Final = "*"
"""As the name of a literal pattern, a principal's name or a host: all of them."""
EVERY_USER: Final = f"{USER}:{WILDCARD}"


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_CONFIGS: Final = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
OPERATIONS: Final[dict[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: (
        *(AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE),
        *(AclOperation.ALTER, AclOperation.DESCRIBE, *_CONFIGS),
    ),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        *(AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION),
        *(*_CONFIGS, AclOperation.IDEMPOTENT_WRITE),
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that each type of resource supports, in Kafka's order."""


class Acl(NamedTuple):
    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: Permission

    def names(self, resource: str) -> bool:
        """Whether the pattern covers the resource with this name."""
        if self.pattern_type is PatternType.PREFIXED:
            return resource.startswith(self.name)
        return self.name in (WILDCARD, resource)


class AclFilter(NamedTuple):
    """Selects ACLs. None selects any name, principal or host; ANY any operation, permission, type or pattern. The
    pattern type MATCH selects every pattern that covers the name."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or acl.names(self.name)
        return self.pattern_type in (PatternType.ANY, acl.pattern_type) and self.name in (None, acl.name)


def check_acl(acl: Acl) -> None:
    """Raises `InvalidAcl` for an ACL that can only be used as a filter, or that no request can match."""
    if acl.resource_type not in OPERATIONS:
        raise InvalidAcl(reason=f"{acl.resource_type.name} is not a type of resource")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidAcl(reason=f"its pattern is {acl.pattern_type.name}, not LITERAL or PREFIXED")
    if not acl.name:
        raise InvalidAcl(reason="the name of the resource is empty")
    if acl.resource_type is ResourceType.CLUSTER and acl.name not in (CLUSTER_NAME, WILDCARD):
        raise InvalidAcl(reason=f"the name of the cluster is {CLUSTER_NAME}")
    if acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise InvalidAcl(reason=f"{acl.operation.name} is not an operation")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidAcl(reason=f"its permission is {acl.permission.name}, not ALLOW or DENY")
    if not acl.host:
        raise InvalidAcl(reason="the host is empty; write * for every host")
    _check_principal(acl.principal)


def _check_principal(principal: str) -> None:
    kind, _, name = principal.partition(":")
    if not (kind and name):
        raise InvalidAcl(reason=f"{principal!r} is not a principal: write it as User:name")
