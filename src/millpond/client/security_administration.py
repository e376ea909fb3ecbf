"""Users, API tokens, ACLs and quotas as administrators see them, on an event loop: part of `AsyncAdmin`.

Brokers refuse all of these calls while their setting `security` is off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from google.protobuf.message import Message as Proto

from millpond.client import arguments
from millpond.client.calls import ADMIN, Connections, ProtoResponse
from millpond.model.acl_texts import ANY
from millpond.model.acls import OPERATIONS, WILDCARD, AclOperation, PatternType, Permission
from millpond.model.clock import SystemClock
from millpond.stubs import admin_pb2 as pb


def _names(*given: AclOperation | PatternType | Permission) -> dict[str, str]:
    return {each.name.lower(): each.name.lower() for each in given}


RESOURCE_TYPES: Final = {each.name.lower(): each.name.lower() for each in OPERATIONS}
ACL_OPERATIONS: Final = _names(
    *(each for each in AclOperation if each not in (AclOperation.UNKNOWN, AclOperation.ANY))
)
PATTERN_TYPES: Final = _names(PatternType.LITERAL, PatternType.PREFIXED)
MATCHING_TYPES: Final = {**PATTERN_TYPES, **_names(PatternType.MATCH)}
PERMISSIONS: Final = _names(Permission.ALLOW, Permission.DENY)


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user with a password. `mechanisms` are the stored forms of the password, with the iterations of each."""

    name: str
    mechanisms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """What is stored of an API token, which is not its text. `expires_at_ms` is None if it does not expire."""

    id: str
    principal: str
    created_at_ms: int
    created_by: str
    expires_at_ms: int | None
    description: str


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """A new API token. `text` is what a client sends; it cannot be shown again."""

    id: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AclEntry:
    """Allows or denies one operation on a resource to a principal, such as `AclEntry("topic", "orders", "User:alice",
    "read")`. `resource_type` is "topic", "group", "cluster" (whose name may be empty) or "transactional_id". With the
    `pattern_type` "prefixed", `name` is the beginning of names; the name `*` is every name. `host` is the address of
    the client, or `*`. `permission` is "allow" or "deny"."""

    resource_type: str
    name: str
    principal: str
    operation: str
    pattern_type: str = "literal"
    host: str = WILDCARD
    permission: str = "allow"

    def __post_init__(self) -> None:
        kind = arguments.choice("resource_type", self.resource_type, RESOURCE_TYPES)
        (arguments.text if kind == "cluster" else arguments.label)("name", self.name)
        arguments.principal("principal", self.principal)
        arguments.choice("operation", self.operation, ACL_OPERATIONS)
        arguments.choice("pattern_type", self.pattern_type, PATTERN_TYPES)
        arguments.label("host", self.host)
        arguments.choice("permission", self.permission, PERMISSIONS)


@dataclass(frozen=True, slots=True)
class QuotaDescription:
    """The quotas of a user, a client id, a user with a client id, an address (`ip`), or a topic. None is not part
    of it; an empty name is every user, client id or address that has no quota of its own, and `orders-*` all topics
    with this prefix. `values` are the limits by key."""

    user: str | None
    client_id: str | None
    ip: str | None
    topic: str | None
    values: Mapping[str, float]


class SecurityCalls:
    """Listing needs the right to DESCRIBE the cluster, changing the right to ALTER it; for quotas DESCRIBE_CONFIGS and
    ALTER_CONFIGS."""

    _connections: Connections

    # -- users ------------------------------------------------------------------------------------------------

    async def list_users(self) -> list[UserDescription]:
        """All users with a password, ordered by name."""
        found = await self._connections.call(ADMIN, "ListUsers", pb.ListUsersRequest(), pb.ListUsersResponse)
        return [_user(each) for each in found.users]

    async def set_password(self, user: str, password: str) -> None:
        """Create a user, or replace its password. Connections that used the old password are closed."""
        request = pb.PutUserRequest(
            name=arguments.username("user", user), password=arguments.password("password", password)
        )
        await self._connections.call(ADMIN, "PutUser", request, pb.PutUserResponse)

    async def delete_user(self, user: str) -> None:
        """Delete the password of a user. Its tokens stay valid, and its ACLs are kept."""
        request = pb.DeleteUserRequest(name=arguments.label("user", user))
        await self._change("DeleteUser", request, pb.DeleteUserResponse)

    # -- tokens -----------------------------------------------------------------------------------------------

    async def list_tokens(self) -> list[TokenDescription]:
        """All API tokens, without their texts."""
        request = pb.ListTokensRequest()
        found = await self._connections.call(ADMIN, "ListTokens", request, pb.ListTokensResponse)
        return [_token(each) for each in found.tokens]

    async def create_token(
        self,
        principal: str,
        *,
        expires_in: float | None = None,
        expires_at: datetime | int | None = None,
        description: str = "",
    ) -> CreatedToken:
        """Create an API token for a principal, such as "User:alice", which needs no password. It expires after
        `expires_in` seconds, or at `expires_at` (a datetime, or milliseconds since 1970), or never. Only the result
        has its text."""
        request = pb.CreateTokenRequest(
            principal=arguments.principal("principal", principal),
            expires_at_ms=_expiry_ms(expires_in, expires_at),
            description=arguments.text("description", description),
        )
        created = await self._change("CreateToken", request, pb.CreateTokenResponse)
        return CreatedToken(created.id, created.token)

    async def delete_token(self, token_id: str) -> None:
        """Delete an API token by its id. Connections that used it are closed."""
        request = pb.DeleteTokenRequest(id=arguments.label("token_id", token_id))
        await self._change("DeleteToken", request, pb.DeleteTokenResponse)

    # -- ACLs -------------------------------------------------------------------------------------------------

    async def list_acls(
        self,
        *,
        resource_type: str | None = None,
        name: str | None = None,
        pattern_type: str | None = None,
        principal: str | None = None,
        host: str | None = None,
        operation: str | None = None,
        permission: str | None = None,
    ) -> list[AclEntry]:
        """The ACLs that have the given values. The `pattern_type` "match" selects those that apply to the resource
        `name`: its own, those of prefixes, and those of `*`."""
        selection = _selection(resource_type, name, pattern_type, principal, host, operation, permission)
        request = pb.ListAclsRequest(filter=selection)
        found = await self._connections.call(ADMIN, "ListAcls", request, pb.ListAclsResponse)
        return [_entry(each) for each in found.acls]

    async def create_acls(self, acls: Sequence[AclEntry]) -> None:
        """Create ACLs, all or none. One that exists is kept."""
        checked = arguments.instances("acls", acls, AclEntry)
        request = pb.CreateAclsRequest(acls=[_message(each) for each in checked])
        await self._connections.call(ADMIN, "CreateAcls", request, pb.CreateAclsResponse)

    async def delete_acls(
        self,
        *,
        resource_type: str | None = None,
        name: str | None = None,
        pattern_type: str | None = None,
        principal: str | None = None,
        host: str | None = None,
        operation: str | None = None,
        permission: str | None = None,
    ) -> list[AclEntry]:
        """Delete the ACLs that `list_acls` would return, and return them. At least one value has to be given."""
        selection = _selection(resource_type, name, pattern_type, principal, host, operation, permission)
        request = pb.DeleteAclsRequest(filter=selection)
        deleted = await self._change("DeleteAcls", request, pb.DeleteAclsResponse)
        return [_entry(each) for each in deleted.acls]

    # -- quotas -----------------------------------------------------------------------------------------------

    async def list_quotas(self) -> list[QuotaDescription]:
        """All quotas, one entry for each user, client id, user with client id, address or topic that has any."""
        request = pb.ListQuotasRequest()
        found = await self._connections.call(ADMIN, "ListQuotas", request, pb.ListQuotasResponse)
        return [_quota(each) for each in found.quotas]

    async def alter_quotas(
        self,
        quotas: Mapping[str, float | None],
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        topic: str | None = None,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of a user, a client id, a user with a client id, an address (`ip`), or a topic; None removes
        a quota. An empty name is every user, client id or address that has no quota of its own; `orders-*` is all
        topics with this prefix. The keys are "producer_byte_rate", "consumer_byte_rate", "request_percentage" and
        "controller_mutation_rate"; of an address "connection_creation_rate"; of a topic "stored_bytes". With
        `validate_only` nothing is changed."""
        alteration = _alteration(quotas, user, client_id, ip, topic)
        request = pb.AlterQuotasRequest(
            alterations=[alteration], validate_only=arguments.flag("validate_only", validate_only)
        )
        await self._connections.call(ADMIN, "AlterQuotas", request, pb.AlterQuotasResponse)

    async def _change(self, name: str, request: Proto, response: type[ProtoResponse]) -> ProtoResponse:
        """A second attempt would fail, or return something else."""
        return await self._connections.call_at_most_once(ADMIN, name, request, response)


def _expiry_ms(expires_in: float | None, expires_at: datetime | int | None) -> int | None:
    if expires_in is None:
        return arguments.optional(arguments.moment, "expires_at", expires_at)
    if expires_at is not None:
        raise arguments.out_of_range("expires_in", expires_in, "no expires_at beside it")
    return SystemClock().now_ms() + int(arguments.timeout("expires_in", expires_in) * 1000)


def _selection(
    resource_type: str | None,
    name: str | None,
    pattern_type: str | None,
    principal: str | None,
    host: str | None,
    operation: str | None,
    permission: str | None,
) -> pb.Acl:
    return pb.Acl(
        resource_type=_chosen("resource_type", resource_type, RESOURCE_TYPES),
        name=arguments.optional(arguments.label, "name", name),
        pattern_type=_chosen("pattern_type", pattern_type, MATCHING_TYPES),
        principal=arguments.optional(arguments.principal, "principal", principal),
        host=arguments.optional(arguments.label, "host", host),
        operation=_chosen("operation", operation, ACL_OPERATIONS),
        permission=_chosen("permission", permission, PERMISSIONS),
    )


def _chosen(name: str, value: str | None, choices: Mapping[str, str]) -> str:
    return ANY if value is None else arguments.choice(name, value, choices)


def _alteration(
    quotas: Mapping[str, float | None],
    user: str | None,
    client_id: str | None,
    ip: str | None,
    topic: str | None,
) -> pb.QuotaAlteration:
    arguments.configs("quotas", quotas, (float, int, type(None)))
    if not quotas:
        raise arguments.out_of_range("quotas", quotas, "at least one quota")
    return pb.QuotaAlteration(
        entity=pb.QuotaEntity(
            user=arguments.optional(arguments.text, "user", user),
            client_id=arguments.optional(arguments.text, "client_id", client_id),
            ip=arguments.optional(arguments.text, "ip", ip),
            topic=arguments.optional(arguments.label, "topic", topic),
        ),
        set={key: value for key, value in quotas.items() if value is not None},
        remove=[key for key, value in quotas.items() if value is None],
    )


def _quota(found: pb.Quota) -> QuotaDescription:
    entity = found.entity
    return QuotaDescription(
        *(_named(entity, "user"), _named(entity, "client_id"), _named(entity, "ip"), _named(entity, "topic")),
        values=dict(found.values),
    )


def _named(entity: pb.QuotaEntity, field: Literal["user", "client_id", "ip", "topic"]) -> str | None:
    return str(getattr(entity, field)) if entity.HasField(field) else None


def _user(found: pb.User) -> UserDescription:
    return UserDescription(found.name, {each.mechanism: each.iterations for each in found.credentials})


def _token(found: pb.Token) -> TokenDescription:
    expires_at_ms = found.expires_at_ms if found.HasField("expires_at_ms") else None
    return TokenDescription(
        *(found.id, found.principal, found.created_at_ms, found.created_by),
        *(expires_at_ms, found.description),
    )


def _entry(found: pb.Acl) -> AclEntry:
    return AclEntry(
        *(found.resource_type, found.name, found.principal, found.operation),
        *(found.pattern_type, found.host, found.permission),
    )


def _message(entry: AclEntry) -> pb.Acl:
    return pb.Acl(
        resource_type=entry.resource_type,
        name=entry.name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )
