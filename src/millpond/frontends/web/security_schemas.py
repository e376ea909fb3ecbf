"""The JSON types of users, API tokens, ACLs and quotas."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from millpond.frontends.web.schemas import Millis, RequestStruct
from millpond.model.acl_texts import AclText

ACLS_PER_REQUEST_MAX = 1_000
QUOTAS_PER_REQUEST_MAX = 1_000
AclResourceJson = Literal["topic", "group", "cluster", "transactional_id", "delegation_token", "user"]
AclOperationJson = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
]
AclPermissionJson = Literal["allow", "deny"]


class PasswordJson(RequestStruct, frozen=True):
    password: Annotated[str, Meta(min_length=1, max_length=1_000)]

    def __repr__(self) -> str:
        return "PasswordJson()"


class CredentialJson(Struct, frozen=True):
    mechanism: str
    iterations: int


class UserJson(Struct, frozen=True):
    name: str
    credentials: list[CredentialJson]


class UsersJson(Struct, frozen=True):
    users: list[UserJson]


class EndedSessionsJson(Struct, frozen=True):
    """`ended` is their number."""

    ended: int


class NewTokenJson(RequestStruct, frozen=True):
    """A token without `expires_at_ms` is valid until it is deleted."""

    principal: str
    expires_at_ms: Millis | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=1_000)] = ""


class TokenJson(Struct, frozen=True, omit_defaults=True):
    id: str
    principal: str
    created_at_ms: int
    created_by: str
    expires_at_ms: int | UnsetType = UNSET
    description: str = ""


class TokensJson(Struct, frozen=True):
    tokens: list[TokenJson]


class CreatedTokenJson(Struct, frozen=True):
    """`token` is the text that clients send. The broker does not store it, and shows it only here."""

    id: str
    token: str

    def __repr__(self) -> str:
        return f"CreatedTokenJson(id={self.id!r})"


class AclJson(RequestStruct, frozen=True):
    """Allows or denies one operation. `name` of a cluster may be left out."""

    resource_type: AclResourceJson
    principal: str
    operation: AclOperationJson
    name: str = ""
    pattern_type: Literal["literal", "prefixed"] = "literal"
    host: str = "*"
    permission: AclPermissionJson = "allow"

    def to_text(self) -> AclText:
        return AclText(**structs.asdict(self))


class AclsJson(RequestStruct, frozen=True):
    acls: Annotated[list[AclJson], Meta(max_length=ACLS_PER_REQUEST_MAX)]


class ListedAclsJson(Struct, frozen=True):
    acls: list[AclJson]


class AclFilterQuery(RequestStruct, frozen=True):
    """Selects ACLs. Parameters that are not given select every value. The pattern type `match` selects the ACLs that
    apply to the resource with this name."""

    resource_type: AclResourceJson | UnsetType = UNSET
    name: str | UnsetType = UNSET
    principal: str | UnsetType = UNSET
    operation: AclOperationJson | UnsetType = UNSET
    pattern_type: Literal["literal", "prefixed", "match"] | UnsetType = UNSET
    host: str | UnsetType = UNSET
    permission: AclPermissionJson | UnsetType = UNSET


class QuotaJson(Struct, frozen=True, omit_defaults=True):
    """The quotas of a user, a client id, a user with a client id, an address, or a topic. An empty name is every user,
    client id or address that has no quota of its own; `orders-*` is all topics with this prefix."""

    values: dict[str, float]
    user: str | UnsetType = UNSET
    client_id: str | UnsetType = UNSET
    ip: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET


class QuotasJson(Struct, frozen=True):
    quotas: list[QuotaJson]


class QuotaAlterationJson(RequestStruct, frozen=True):
    """New values by key; null removes a quota. An empty name is every user, client id or address that has no quota of
    its own; `orders-*` is all topics with this prefix."""

    values: Annotated[dict[str, float | None], Meta(min_length=1)]
    user: str | UnsetType = UNSET
    client_id: str | UnsetType = UNSET
    ip: str | UnsetType = UNSET
    topic: str | UnsetType = UNSET


class QuotaAlterationsJson(RequestStruct, frozen=True):
    """With `validate_only`, the request is checked and nothing is changed."""

    alterations: Annotated[list[QuotaAlterationJson], Meta(min_length=1, max_length=QUOTAS_PER_REQUEST_MAX)]
    validate_only: bool = False
