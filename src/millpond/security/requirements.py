"""The rights that an operation needs, declared as data next to the operation of the HTTP or gRPC interface.

A requirement names its resources by fields of the request. Every operation has a rule; only a rule that is `PUBLIC` or
`ANYONE` admits clients that have not authenticated.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from millpond.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from millpond.security.access import Access

ReadField = Callable[[Any, str], Any]
"""Reads a field of a request or of a part of it; None if it is absent."""
SEPARATOR: Final = "/"
"""Between the topic and the name of a subscription, which together are the name of a group."""
Names = Sequence[str] | None
"""Of the resources that a request names; None if the fields that would name them are absent."""


@dataclass(frozen=True, slots=True)
class Needs:
    """`of` is the path of the field that names the resource, such as `messages.topic`; each member of a repeated field
    is checked. The values of several fields are joined to one name. Without it the resource is the cluster. With
    `when`, nothing is required of a request in which all these fields are absent or empty."""

    operation: AclOperation
    resource: ResourceType
    of: str | tuple[str, ...] = ()
    when: tuple[str, ...] = ()

    def fields(self) -> tuple[str, ...]:
        """All fields that the requirement reads."""
        return (*self._naming_fields(), *self.when)

    def names(self, request: Any, read: ReadField) -> Names:
        if self.when and not any(_is_set(request, field, read) for field in self.when):
            return []
        fields = self._naming_fields()
        if not fields:
            return [CLUSTER_NAME]
        found = [_values(request, field.split("."), read) for field in fields]
        if all(values is None for values in found):
            return None
        if len(found) == 1:
            return found[0]
        return [SEPARATOR.join((values or [""])[0] for values in found)]

    def _naming_fields(self) -> tuple[str, ...]:
        return (self.of,) if isinstance(self.of, str) else self.of

    def is_met(self, access: Access, names: Sequence[str]) -> bool:
        return all(access.allows(self.operation, self.resource, name) for name in names)

    def require(self, access: Access, names: Sequence[str]) -> None:
        for name in names:
            access.require(self.operation, self.resource, name)


@dataclass(frozen=True, slots=True)
class NeedsSomewhere:
    """The operation must be allowed on some resource of the type, as Kafka requires it for an id of a producer."""

    operation: AclOperation
    resource: ResourceType

    def fields(self) -> tuple[str, ...]:
        return ()

    def names(self, _: Any, __: ReadField) -> Names:
        return []

    def is_met(self, access: Access, _: Sequence[str]) -> bool:
        return access.allows_somewhere(self.operation, self.resource)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """One of two rights is enough. A client without both is refused as if it needed the first one."""

    first: Needs
    second: Needs | NeedsSomewhere

    def fields(self) -> tuple[str, ...]:
        return (*self.first.fields(), *self.second.fields())

    def names(self, request: Any, read: ReadField) -> Names:
        return self.first.names(request, read)

    def require(self, access: Access, names: Sequence[str]) -> None:
        second_names = [CLUSTER_NAME] if isinstance(self.second, Needs) else []
        if not self.second.is_met(access, second_names):
            self.first.require(access, names)


@dataclass(frozen=True, slots=True)
class Shows:
    """The response contains only resources on which the operation is allowed. The handler selects them."""

    operation: AclOperation
    resource: ResourceType

    def fields(self) -> tuple[str, ...]:
        return ()

    def names(self, _: Any, __: ReadField) -> Names:
        return []

    def require(self, access: Access, names: Sequence[str]) -> None:
        """Every client may call the operation."""


Requirement = Needs | AnyOf | Shows


@dataclass(frozen=True, slots=True)
class Rule:
    """All `requirements` must be met. `is_public`: clients are not authenticated. `is_optional`: they need not
    authenticate, and are anonymous then. `waits`: the call may wait for data, so its rights are checked again before it
    responds. `per_request`: every request of a stream names its own resources, and those of earlier ones do not
    matter. `counts`: the quota of bytes that the requests or the responses use."""

    requirements: tuple[Requirement, ...] = ()
    is_public: bool = False
    is_optional: bool = False
    waits: bool = False
    per_request: bool = False
    counts: str | None = None


PUBLIC: Final = Rule(is_public=True)
"""Clients need not authenticate."""
ANYONE: Final = Rule(is_optional=True)
"""Clients need not authenticate; the operation shows or ends what they have if they do."""
AUTHENTICATED: Final = Rule()
"""Every client that has authenticated may call the operation."""


def needs(
    *requirements: Requirement, waits: bool = False, per_request: bool = False, counts: str | None = None
) -> Rule:
    if not requirements:
        raise ValueError("an operation without requirements is declared AUTHENTICATED or PUBLIC")
    return Rule(requirements, waits=waits, per_request=per_request, counts=counts)


def require_creation(access: Access, topic: str) -> None:
    """A client may create topics with the right on the cluster or on the topic."""
    if not access.allows(AclOperation.CREATE, ResourceType.CLUSTER):
        access.require(AclOperation.CREATE, ResourceType.TOPIC, topic)


def _is_set(request: Any, field: str, read: ReadField) -> bool:
    value = request
    for name in field.split("."):
        value = read(value, name)
        if not value:
            return False
    return True


def _values(owner: Any, fields: Sequence[str], read: ReadField) -> list[str] | None:
    """The values at the end of the path; None if the path ends before."""
    if not fields:
        return [str(owner)]
    value = read(owner, fields[0])
    if value is None:
        return None
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(_member_values(value, fields[1:], read))
    return _values(value, fields[1:], read)


def _member_values(members: Sequence[Any], fields: Sequence[str], read: ReadField) -> Iterator[str]:
    for member in members:
        yield from _values(member, fields, read) or [""]
