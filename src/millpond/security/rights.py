"""What one principal may do from one host, according to the ACLs. No I/O.

A matching DENY wins over every ALLOW; without a matching ALLOW the answer is no. ALLOW of READ, WRITE, DELETE or ALTER
implies DESCRIBE, and ALLOW of ALTER_CONFIGS implies DESCRIBE_CONFIGS; a DENY implies nothing. A super user may do
everything. These are Kafka's rules. One is our own: on a read-only topic, which the broker itself writes, all clients
are limited to READ, DESCRIBE and DESCRIBE_CONFIGS.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from millpond.model.acls import (
    EVERY_USER,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from millpond.model.principals import Principal

NAMES_CACHED_MAX: Final = 10_000
NAME_CACHED_CHARS_MAX: Final = 500
"""Longer names are decided each time: clients invent them, and the cache would hold them."""
EVERYTHING: Final = (1 << 16) - 1
"""A bit for every operation."""
_DESCRIBE: Final = 1 << AclOperation.DESCRIBE
READING: Final = 1 << AclOperation.READ | _DESCRIBE | 1 << AclOperation.DESCRIBE_CONFIGS
"""What clients may do with a read-only topic."""
_IMPLIED: Final = {
    AclOperation.READ: _DESCRIBE,
    AclOperation.WRITE: _DESCRIBE,
    AclOperation.DELETE: _DESCRIBE,
    AclOperation.ALTER: _DESCRIBE,
    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,
}
SUPPORTED: Final = {
    kind: sum(1 << operation for operation in operations) for kind, operations in OPERATIONS.items()
}


class Rights:
    """Immutable but for its cache. A check of a name that was checked before is one look-up."""

    def __init__(
        self,
        principal: Principal,
        host: str,
        acls: Iterable[Acl],
        *,
        is_super_user: bool = False,
        read_only_topics: Collection[str] = (),
    ) -> None:
        self.is_super_user = is_super_user
        named = str(principal)
        self._acls = tuple(acl for acl in acls if _concerns(acl, named, host))
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = defaultdict(list)
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = defaultdict(list)
        for acl in self._acls:
            found = self._prefixed if acl.pattern_type is PatternType.PREFIXED else self._literal
            found[acl.resource_type, acl.name].append(acl)
        self._prefix_lengths = sorted({len(name) for _, name in self._prefixed})
        self._read_only = frozenset((ResourceType.TOPIC, name) for name in read_only_topics)
        self._cache: dict[tuple[ResourceType, str], int] = {}

    def allowed(self, resource: ResourceType, name: str) -> int:
        """The allowed operations on a resource, as bits."""
        if self.is_super_user:
            return READING if self._read_only and (resource, name) in self._read_only else EVERYTHING
        found = self._cache.get((resource, name))
        if found is None:
            if len(name) > NAME_CACHED_CHARS_MAX:
                return self._decided(resource, name)
            if len(self._cache) >= NAMES_CACHED_MAX:
                self._cache.clear()
            found = self._cache[resource, name] = self._decided(resource, name)
        return found

    def allows_somewhere(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether some resource of this type may exist on which the operation is allowed. Used for producers that ask
        for an id before they name a topic."""
        if self.is_super_user:
            return True
        wanted = (operation, AclOperation.ALL)
        acls = [acl for acl in self._acls if acl.resource_type is resource and acl.operation in wanted]
        denied = {(acl.pattern_type, acl.name) for acl in acls if acl.permission is Permission.DENY}
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_covered(acl, denied) for acl in acls if acl.permission is Permission.ALLOW)

    def _decided(self, resource: ResourceType, name: str) -> int:
        found = _decide(self._matching(resource, name))
        return found & READING if (resource, name) in self._read_only else found

    def _matching(self, resource: ResourceType, name: str) -> Iterable[Acl]:
        yield from self._literal.get((resource, name), ())
        yield from self._literal.get((resource, WILDCARD), ()) if name != WILDCARD else ()
        for length in self._prefix_lengths:
            if length > len(name):
                break
            yield from self._prefixed.get((resource, name[:length]), ())


def _concerns(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, EVERY_USER) and acl.host in (host, WILDCARD)


def _decide(acls: Iterable[Acl]) -> int:
    allowed = denied = 0
    for acl in acls:
        bits = EVERYTHING if acl.operation is AclOperation.ALL else 1 << acl.operation
        if acl.permission is Permission.DENY:
            denied |= bits
        else:
            allowed |= bits | _IMPLIED.get(acl.operation, 0)
    return allowed & ~denied


def _is_covered(allow: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    """Whether a DENY covers all that this ALLOW names."""
    if allow.pattern_type is PatternType.LITERAL:
        if allow.name == WILDCARD:
            return False
        if (PatternType.LITERAL, allow.name) in denied:
            return True
    return any((PatternType.PREFIXED, allow.name[:end]) in denied for end in range(1, len(allow.name) + 1))
