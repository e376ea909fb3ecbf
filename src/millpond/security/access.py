"""What a client may do, as interfaces ask it: one object per Kafka connection, HTTP request or gRPC call.

Checks follow changes of the ACLs: an access compares one version and gets new rights when they have changed.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from millpond.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from millpond.model.clock import SystemClock
from millpond.model.errors import (
    AuthenticationFailed,
    ClusterNotAuthorized,
    GroupNotAuthorized,
    NotAuthorized,
    TopicNotAuthorized,
    TransactionalIdNotAuthorized,
)
from millpond.model.principals import Principal
from millpond.security.identity import ANONYMOUS_IDENTITY, Identity
from millpond.security.quotas import QuotaLimiter
from millpond.security.rights import SUPPORTED, Rights

_REFUSALS: Final[Mapping[ResourceType, Callable[[str, str, str], NotAuthorized]]] = {
    ResourceType.TOPIC: lambda who, what, name: TopicNotAuthorized(principal=who, operation=what, topic=name),
    ResourceType.GROUP: lambda who, what, name: GroupNotAuthorized(principal=who, operation=what, group=name),
    ResourceType.CLUSTER: lambda who, what, _: ClusterNotAuthorized(principal=who, operation=what),
    ResourceType.TRANSACTIONAL_ID: lambda who, what, name: TransactionalIdNotAuthorized(
        principal=who, operation=what, transactional_id=name
    ),
}


class RightsSource(Protocol):
    """Where an access gets its rights from: the broker's view of the stored ACLs."""

    version: int
    quotas: QuotaLimiter

    def rights(self, principal: Principal, host: str) -> Rights: ...

    def is_valid(self, identity: Identity) -> bool:
        """Whether the credential is still the stored one and has not expired."""

    def denied(self, principal: Principal, host: str, refusal: NotAuthorized) -> None:
        """A request is refused."""


class Access:
    def __init__(self, identity: Identity, host: str, source: RightsSource) -> None:
        self.identity = identity
        self.host = host
        self._source = source
        self._version = source.version
        self._rights: Rights | None = None

    @property
    def principal(self) -> Principal:
        return self.identity.principal

    @property
    def quotas(self) -> QuotaLimiter:
        """The limits of all clients; see `throttling.py`."""
        return self._source.quotas

    def allows(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        return bool(self._current().allowed(resource, name) >> operation & 1)

    def require(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raises `NotAuthorized`, whether or not the resource exists."""
        if not self.allows(operation, resource, name):
            refusal = _REFUSALS[resource](str(self.principal), _verb(operation), name)
            self._source.denied(self.principal, self.host, refusal)
            raise refusal

    def allows_somewhere(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the operation may be allowed on some resource of this type."""
        return self._current().allows_somewhere(operation, resource)

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """The allowed ones among the operations that this type of resource supports, as Kafka's bit field."""
        return self._current().allowed(resource, name) & SUPPORTED[resource]

    def check_valid(self) -> None:
        """Raises `AuthenticationFailed` when the credential has expired, was changed or was deleted."""
        if not self._source.is_valid(self.identity):
            raise AuthenticationFailed("The credential has expired or was revoked. Authenticate again.")

    def _current(self) -> Rights:
        if self._rights is None or self._version != self._source.version:
            self._version = self._source.version
            self._rights = self._source.rights(self.identity.principal, self.host)
        return self._rights


class _EverythingAllowed:
    """The source of rights while security is off."""

    version = 0

    def __init__(self) -> None:
        self.quotas = QuotaLimiter(SystemClock())

    def rights(self, principal: Principal, host: str) -> Rights:
        return Rights(principal, host, (), is_super_user=True)

    def is_valid(self, identity: Identity) -> bool:
        return True

    def denied(self, principal: Principal, host: str, refusal: NotAuthorized) -> None:
        """Does not happen."""


OPEN_ACCESS: Final = Access(ANONYMOUS_IDENTITY, "", _EverythingAllowed())
"""The access of every client while security is off."""


_VERBS: Final = {
    AclOperation.DESCRIBE_CONFIGS: "describe the configs of",
    AclOperation.ALTER_CONFIGS: "alter the configs of",
    AclOperation.IDEMPOTENT_WRITE: "write idempotently to",
    AclOperation.CLUSTER_ACTION: "act as a broker of",
}
"""For the text of refusals. The other operations are verbs."""


def _verb(operation: AclOperation) -> str:
    return _VERBS.get(operation, operation.name.lower())
