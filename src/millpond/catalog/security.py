"""Credentials of users, API tokens, ACLs and quotas, with one version for all of them.

Every change raises the version in the same transaction, so that a broker sees with one read whether it must load
them again. Passwords and tokens are not stored: only what proves that a client knows them.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from millpond.catalog import sessions
from millpond.catalog.database import CatalogTransaction, Row
from millpond.catalog.schema import read_meta
from millpond.model.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType, check_acl
from millpond.model.errors import (
    InvalidAcl,
    InvalidCredential,
    InvalidInput,
    InvalidRequest,
    UnknownToken,
    UnknownUser,
)
from millpond.model.principals import USER, Principal
from millpond.model.quotas import ClientQuota, QuotaChanges, QuotaEntity, check_quota

CREDENTIALS_MAX: Final = 100_000
TOKENS_MAX: Final = 100_000
ACLS_MAX: Final = 100_000
QUOTAS_MAX: Final = 10_000
"""Every broker holds all of them in memory."""

VERSION: Final = "SELECT next FROM counters WHERE name = 'security'"
BUMP: Final = "UPDATE counters SET next = next + 1 WHERE name = 'security' RETURNING next"
CREDENTIALS: Final = """
    SELECT user_name, mechanism, salt, stored_key, server_key, iterations, version FROM scram_credentials
    ORDER BY user_name, mechanism
"""
PUT_CREDENTIAL: Final = """
    INSERT INTO scram_credentials (user_name, mechanism, salt, stored_key, server_key, iterations, version)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (user_name, mechanism) DO UPDATE SET salt = excluded.salt, stored_key = excluded.stored_key,
      server_key = excluded.server_key, iterations = excluded.iterations, version = excluded.version
"""
DELETE_CREDENTIAL: Final = """
    DELETE FROM scram_credentials WHERE user_name = ? AND mechanism = ? RETURNING user_name
"""
DELETE_USER: Final = "DELETE FROM scram_credentials WHERE user_name = ? RETURNING mechanism"
TOKENS: Final = """
    SELECT id, digest, principal, expires_at, created_at, created_by, description FROM api_tokens ORDER BY id
"""
ADD_TOKEN: Final = """
    INSERT INTO api_tokens (id, digest, principal, expires_at, created_at, created_by, description)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""  # noqa: S105  # no secret
DELETE_TOKEN: Final = "DELETE FROM api_tokens WHERE id = ? RETURNING id"  # noqa: S105  # no secret
ACLS: Final = """
    SELECT resource_type, pattern_type, name, principal, host, operation, permission FROM acls
    ORDER BY resource_type, pattern_type, name, principal, host, operation, permission
"""
PUT_ACL: Final = """
    INSERT INTO acls (resource_type, pattern_type, name, principal, host, operation, permission)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
DELETE_ACL: Final = """
    DELETE FROM acls WHERE resource_type = ? AND pattern_type = ? AND name = ? AND principal = ? AND host = ?
      AND operation = ? AND permission = ?
"""
QUOTAS: Final = "SELECT entity, key, value FROM quotas ORDER BY entity, key"
PUT_QUOTA: Final = """
    INSERT INTO quotas (entity, key, value) VALUES (?, ?, ?)
    ON CONFLICT (entity, key) DO UPDATE SET value = excluded.value
"""
DELETE_QUOTA: Final = "DELETE FROM quotas WHERE entity = ? AND key = ?"


class ScramCredential(NamedTuple):
    """What is stored of a password (RFC 5802). `version` is that of the last change."""

    user: str
    mechanism: str
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    version: int = 0

    def __repr__(self) -> str:
        return f"ScramCredential(user={self.user!r}, mechanism={self.mechanism!r})"


class ApiToken(NamedTuple):
    """What is stored of an API token: `digest` is the SHA-256 of its text."""

    id: str
    digest: bytes
    principal: str
    expires_at_ms: int | None
    created_at_ms: int
    created_by: str
    description: str = ""

    def __repr__(self) -> str:
        return f"ApiToken(id={self.id!r}, principal={self.principal!r})"


class SecurityRows(NamedTuple):
    version: int
    credentials: Sequence[ScramCredential]
    tokens: Sequence[ApiToken]
    acls: Sequence[Acl]
    quotas: Sequence[ClientQuota] = ()


def version(tx: CatalogTransaction) -> int:
    found: int = tx.rows(VERSION)[0][0]
    return found


def read(tx: CatalogTransaction) -> SecurityRows:
    """All rows. The version is read first: a change that is committed meanwhile is read again with the next version."""
    return SecurityRows(version(tx), credentials(tx), tokens(tx), acls(tx), quotas(tx))


def secret(tx: CatalogTransaction) -> bytes:
    """The cluster's secret. It signs the tokens of brokers, and decides the salt that an unknown user gets."""
    return bytes.fromhex(read_meta(tx, "security_secret"))


# -- users ----------------------------------------------------------------------------------------------------


def credentials(tx: CatalogTransaction) -> list[ScramCredential]:
    return [
        ScramCredential(user, mechanism, bytes(salt), bytes(stored), bytes(server), iterations, changed)
        for user, mechanism, salt, stored, server, iterations, changed in tx.rows(CREDENTIALS)
    ]


def put_credentials(tx: CatalogTransaction, put: Sequence[ScramCredential]) -> None:
    """Create or replace credentials. The sessions of their users end."""
    changed = _bump(tx)
    tx.each(PUT_CREDENTIAL, [(*each[:-1], changed) for each in put])
    for user in dict.fromkeys(each.user for each in put):
        sessions.end_all_of(tx, _principal(user))
    _check_count(tx, "scram_credentials", CREDENTIALS_MAX, InvalidCredential)


def delete_credential(tx: CatalogTransaction, user: str, mechanism: str) -> None:
    if not tx.rows(DELETE_CREDENTIAL, (user, mechanism)):
        raise UnknownUser(user=user)
    _bump(tx)
    sessions.end_all_of(tx, _principal(user))


def delete_user(tx: CatalogTransaction, user: str) -> None:
    """Delete all credentials of a user. Its sessions end; its ACLs and tokens stay."""
    if not tx.rows(DELETE_USER, (user,)):
        raise UnknownUser(user=user)
    _bump(tx)
    sessions.end_all_of(tx, _principal(user))


# -- tokens ---------------------------------------------------------------------------------------------------


def tokens(tx: CatalogTransaction) -> list[ApiToken]:
    return [ApiToken(id_, bytes(digest), *rest) for id_, digest, *rest in tx.rows(TOKENS)]


def add_token(tx: CatalogTransaction, token: ApiToken) -> None:
    tx.rows(ADD_TOKEN, token)
    _bump(tx)
    _check_count(tx, "api_tokens", TOKENS_MAX, InvalidCredential)


def delete_token(tx: CatalogTransaction, token_id: str) -> None:
    """The sessions that were opened with the token end."""
    if not tx.rows(DELETE_TOKEN, (token_id,)):
        raise UnknownToken(token=token_id)
    _bump(tx)
    sessions.end_all_by(tx, f"token:{token_id}")


# -- ACLs -----------------------------------------------------------------------------------------------------


def acls(tx: CatalogTransaction) -> list[Acl]:
    return [_acl(row) for row in tx.rows(ACLS)]


def put_acls(tx: CatalogTransaction, put: Sequence[Acl]) -> None:
    """Create ACLs; one that exists already stays as it is."""
    for acl in put:
        check_acl(acl)
    _bump(tx)
    tx.each(PUT_ACL, [_values(acl) for acl in put])
    _check_count(tx, "acls", ACLS_MAX, InvalidAcl)


def delete_acls(tx: CatalogTransaction, filters: Sequence[AclFilter]) -> list[list[Acl]]:
    """Delete the ACLs that any of the filters selects. Returns for each filter what it selected."""
    _bump(tx)  # locks the version's row, so that no other change comes between reading and deleting
    stored = acls(tx)
    selected = [[acl for acl in stored if each.matches(acl)] for each in filters]
    tx.each(DELETE_ACL, [_values(acl) for acl in {acl for chosen in selected for acl in chosen}])
    return selected


# -- quotas ---------------------------------------------------------------------------------------------------


def quotas(tx: CatalogTransaction) -> list[ClientQuota]:
    return [
        ClientQuota(QuotaEntity.from_text(entity), key, float(value))
        for entity, key, value in tx.rows(QUOTAS)
    ]


def alter_quotas(tx: CatalogTransaction, entity: QuotaEntity, changes: QuotaChanges) -> None:
    """Set the given quotas of an entity, and remove those whose value is None."""
    check_quota(entity, changes)
    _bump(tx)
    name = entity.as_text()
    tx.each(
        PUT_QUOTA, [(name, key, repr(float(value))) for key, value in changes.items() if value is not None]
    )
    tx.each(DELETE_QUOTA, [(name, key) for key, value in changes.items() if value is None])
    _check_count(tx, "quotas", QUOTAS_MAX, InvalidRequest)


def _principal(user: str) -> str:
    return str(Principal(USER, user))


def _bump(tx: CatalogTransaction) -> int:
    changed: int = tx.rows(BUMP)[0][0]
    return changed


def _check_count(tx: CatalogTransaction, table: str, limit: int, error: type[InvalidInput]) -> None:
    if tx.rows(f"SELECT count(*) FROM {table}")[0][0] > limit:  # noqa: S608  # our own names
        raise error(reason=f"a cluster has at most {limit} of them")


def _values(acl: Acl) -> tuple[int | str, ...]:
    return tuple(int(value) if isinstance(value, int) else value for value in acl)


def _acl(row: Row) -> Acl:
    kind, pattern, name, principal, host, operation, permission = row
    return Acl(
        ResourceType(kind),
        PatternType(pattern),
        name,
        principal,
        host,
        AclOperation(operation),
        Permission(permission),
    )
