"""ACLs as the text of HTTP and gRPC requests and of the command line: `topic`, `prefixed`, `read`, `allow`."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from millpond.model.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
)
from millpond.model.errors import InvalidAcl

EnumT = TypeVar("EnumT", bound=IntEnum)
ANY: Final = "any"


class AclText(NamedTuple):
    """The values that are not given are those of the simplest ACL. A cluster needs no name."""

    resource_type: str
    name: str
    principal: str
    operation: str
    pattern_type: str = "literal"
    host: str = WILDCARD
    permission: str = "allow"


def acl_of(text: AclText) -> Acl:
    """Raises `InvalidAcl`."""
    kind = _value(ResourceType, "resource_type", text.resource_type)
    acl = Acl(
        kind,
        _value(PatternType, "pattern_type", text.pattern_type),
        text.name or (CLUSTER_NAME if kind is ResourceType.CLUSTER else ""),
        text.principal,
        text.host,
        _value(AclOperation, "operation", text.operation),
        _value(Permission, "permission", text.permission),
    )
    check_acl(acl)
    return acl


def filter_of(given: Mapping[str, str]) -> AclFilter:
    """A filter by the fields of an `AclText`. A field that is absent or empty selects every value."""
    return AclFilter(
        _value(ResourceType, "resource_type", given.get("resource_type") or ANY),
        _value(PatternType, "pattern_type", given.get("pattern_type") or ANY),
        given.get("name") or None,
        given.get("principal") or None,
        given.get("host") or None,
        _value(AclOperation, "operation", given.get("operation") or ANY),
        _value(Permission, "permission", given.get("permission") or ANY),
    )


def selects_all(selection: AclFilter) -> bool:
    """Whether the filter selects every ACL, which is hardly meant by a request that deletes."""
    return selection._replace(pattern_type=PatternType.ANY) == AclFilter() and selection.pattern_type in (
        PatternType.ANY,
        PatternType.MATCH,
    )


def text_of(acl: Acl) -> AclText:
    return AclText(
        resource_type=acl.resource_type.name.lower(),
        name=acl.name,
        principal=acl.principal,
        operation=acl.operation.name.lower(),
        pattern_type=acl.pattern_type.name.lower(),
        host=acl.host,
        permission=acl.permission.name.lower(),
    )


def _value(kind: type[EnumT], name: str, text: str) -> EnumT:
    found = {each.name.lower(): each for each in kind if each.value}.get(text)
    if found is None:
        raise InvalidAcl(reason=f"{text!r} is not a value of {name}")
    return found
