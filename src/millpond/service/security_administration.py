"""Users, API tokens, ACLs and quotas, and who may change them. All interfaces and the CLI share it.

Reading needs DESCRIBE on the cluster, changing ALTER on the cluster; for quotas DESCRIBE_CONFIGS and ALTER_CONFIGS.
Only super users change the passwords and tokens of super users. A change is in effect on this broker when its call
returns, and on the others about a second later.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from millpond.catalog import security, sessions
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.security import ApiToken, ScramCredential
from millpond.model.acls import Acl, AclFilter, AclOperation, PatternType, Permission, ResourceType, check_acl
from millpond.model.clock import Clock
from millpond.model.errors import (
    ClusterNotAuthorized,
    InvalidAcl,
    InvalidRequest,
    MillpondError,
    UnknownToken,
    UnknownUser,
)
from millpond.model.principals import USER, Principal
from millpond.model.quotas import ClientQuota, QuotaChanges, QuotaEntity, check_quota
from millpond.security import Access, SecurityView
from millpond.security.plain import OffLoop
from millpond.security.scram import HASHES, new_credential
from millpond.security.tokens import NewToken, new_token, without_secret
from millpond.topology.catalog_access import WriteCatalog

ITERATIONS: Final = 16_384
ACLS_DELETED_MAX: Final = 10_000
"""Maximum number of ACLs that one call deletes, which is also Kafka's."""

T = TypeVar("T")


class UserMechanism(NamedTuple):
    """A credential of a user, as it may be shown."""

    user: str
    mechanism: str
    iterations: int


class SecurityAdministration:
    """Every call checks the rights of `access` itself and raises `ClusterNotAuthorized`. All calls raise
    `InvalidRequest` while security is off, so that no client that did not authenticate prepares its access."""

    def __init__(
        self,
        write: WriteCatalog,
        view: SecurityView,
        *,
        clock: Clock,
        iterations: int = ITERATIONS,
        random: Callable[[int], bytes] = os.urandom,
        off_loop: OffLoop = asyncio.to_thread,
    ) -> None:
        self._write = write
        self._view = view
        self._clock = clock
        self._iterations = iterations
        self._random = random
        self._off_loop = off_loop

    # -- ACLs ---------------------------------------------------------------------------------------------------

    def list_acls(self, access: Access, selection: AclFilter) -> list[Acl]:
        """The ACLs that the filter selects, in a stable order."""
        self._check(access, AclOperation.DESCRIBE)
        return [acl for acl in self._view.acls if selection.matches(acl)]

    async def create_acls(self, access: Access, acls: Sequence[Acl]) -> list[InvalidAcl | None]:
        """Create the valid ones, and return the error of each other one. One that exists is created again without
        effect."""
        self._check(access, AclOperation.ALTER)
        errors = [_error_of(acl) for acl in acls]
        valid = [acl for acl, error in zip(acls, errors, strict=True) if error is None]
        if valid:
            await self._change(lambda tx: security.put_acls(tx, valid))
            self._record(access, "ACL created", map(describe_acl, valid))
        return errors

    async def delete_acls(self, access: Access, filters: Sequence[AclFilter]) -> list[list[Acl]]:
        """Delete the ACLs that the filters select. Returns for each filter what it selected."""
        self._check(access, AclOperation.ALTER)
        rows = await self._change(lambda tx: _delete_acls(tx, filters))
        deleted = [[_acl(*values) for values in selected] for selected in rows]
        gone = dict.fromkeys(acl for selected in deleted for acl in selected)
        self._record(access, "ACL deleted", map(describe_acl, gone))
        return deleted

    # -- users --------------------------------------------------------------------------------------------------

    def list_credentials(self, access: Access) -> list[UserMechanism]:
        """What may be shown of all credentials, ordered by user."""
        self._check(access, AclOperation.DESCRIBE)
        return [
            UserMechanism(each.user, each.mechanism, each.iterations) for each in self._view.credentials()
        ]

    async def set_password(
        self, access: Access, user: str, password: str, mechanisms: Collection[str] = tuple(HASHES)
    ) -> None:
        """Create a user, or replace its password. Connections that used the old one are closed."""
        self.check_may_alter(access, user)
        made = await self._off_loop(
            lambda: [
                new_credential(user, password, each, self._iterations, self._random) for each in mechanisms
            ]
        )
        await self._change(lambda tx: security.put_credentials(tx, made))
        self._record(access, "password set", [user])

    async def delete_user(self, access: Access, user: str) -> None:
        """Delete the passwords of a user. Raises `UnknownUser`. Its tokens and ACLs stay."""
        self.check_may_alter(access, user)
        await self._change(lambda tx: security.delete_user(tx, user))
        self._record(access, "user deleted", [user])

    async def end_sessions(self, access: Access, user: str) -> int:
        """End the browser sessions of a user, who need not have a password. Returns their number."""
        self.check_may_alter(access, user)
        principal = str(Principal(USER, user))
        ended: int = await self._change(lambda tx: sessions.end_all_of(tx, principal))
        self._record(access, "sessions ended", [user])
        return ended

    async def alter_credentials(
        self, access: Access, put: Sequence[ScramCredential], deleted: Sequence[tuple[str, str]]
    ) -> dict[str, UnknownUser]:
        """Store credentials, and delete others, which are given as user and mechanism, in one transaction. Returns the
        users of which nothing was deleted, with the error."""
        for user in (*(each.user for each in put), *(user for user, _ in deleted)):
            self.check_may_alter(access, user)
        absent = await self._change(lambda tx: _alter_credentials(tx, put, deleted))
        self._record(access, "password set", (each.user for each in put))
        self._record(access, "password deleted", (user for user, _ in deleted if user not in absent))
        return {user: UnknownUser(user=user) for user in absent}

    def check_may_alter(self, access: Access, user: str) -> None:
        """Raises `ClusterNotAuthorized` unless the client may change credentials of this user."""
        self._check(access, AclOperation.ALTER)
        self._check_super_user(access, Principal(USER, user))

    # -- tokens -------------------------------------------------------------------------------------------------

    def list_tokens(self, access: Access) -> list[ApiToken]:
        self._check(access, AclOperation.DESCRIBE)
        return self._view.tokens()

    async def create_token(
        self, access: Access, principal: str, *, expires_at_ms: int | None = None, description: str = ""
    ) -> NewToken:
        """Create a token. Its text is in the result and nowhere else."""
        self._check(access, AclOperation.ALTER)
        made = new_token(
            principal,
            now_ms=self._clock.now_ms(),
            expires_at_ms=expires_at_ms,
            created_by=str(access.principal),
            description=description,
            random=self._random,
        )
        self._check_super_user(access, Principal.parse(principal))
        await self._change(lambda tx: security.add_token(tx, made.stored))
        self._record(access, "token created", [f"{made.stored.id} of {principal}"])
        return made

    async def delete_token(self, access: Access, token_id: str) -> None:
        """Raises `UnknownToken`. Connections that used the token are closed."""
        self._check(access, AclOperation.ALTER)
        token = self._view.token(token_id)
        if token is None:
            raise UnknownToken(token=without_secret(token_id))
        self._check_super_user(access, Principal.parse(token.principal))
        await self._change(lambda tx: security.delete_token(tx, token_id))
        self._record(access, "token deleted", [f"{token_id} of {token.principal}"])

    # -- quotas -------------------------------------------------------------------------------------------------

    def list_quotas(self, access: Access) -> list[ClientQuota]:
        """All quotas, in a stable order."""
        self._check(access, AclOperation.DESCRIBE_CONFIGS)
        return list(self._view.quotas.stored)

    async def alter_quotas(
        self,
        access: Access,
        alterations: Sequence[tuple[QuotaEntity, QuotaChanges]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set and remove quotas, in one transaction. Raises `InvalidRequest` and changes nothing if any is invalid."""
        self._check(access, AclOperation.ALTER_CONFIGS)
        for entity, changes in alterations:
            check_quota(entity, changes)
        if validate_only or not alterations:
            return
        await self._change(lambda tx: _alter_quotas(tx, alterations))
        self._record(access, "quota changed", (str(entity) for entity, _ in alterations))

    # -- internal -----------------------------------------------------------------------------------------------

    def _check(self, access: Access, operation: AclOperation) -> None:
        if not self._view.enabled:
            raise InvalidRequest(reason="security is off; start the broker with security=on")
        access.require(operation, ResourceType.CLUSTER)

    def _record(self, access: Access, change: str, names: Iterable[str]) -> None:
        for name in names:
            self._view.audit.changed(access.principal, access.host, change, name)

    def _check_super_user(self, access: Access, altered: Principal) -> None:
        if self._view.is_super_user(altered) and not self._view.is_super_user(access.principal):
            refusal = ClusterNotAuthorized(
                principal=str(access.principal), operation="alter the super users of"
            )
            self._view.audit.denied(access.principal, access.host, refusal)
            raise refusal

    async def _change(self, operation: Callable[[CatalogTransaction], T]) -> T:
        """The change is committed when its write returns, so a failed refresh is not an error of the call: the view
        tries again by itself."""
        result: T = await self._write(operation)
        with contextlib.suppress(MillpondError):
            await self._view.refresh()
        return result


def _alter_quotas(tx: CatalogTransaction, alterations: Sequence[tuple[QuotaEntity, QuotaChanges]]) -> None:
    for entity, changes in alterations:
        security.alter_quotas(tx, entity, changes)


def describe_acl(acl: Acl) -> str:
    """One line, such as `ALLOW READ on PREFIXED TOPIC 'orders-' to User:alice from *`."""
    pattern = f"{acl.pattern_type.name} {acl.resource_type.name} {acl.name!r}"
    return f"{acl.permission.name} {acl.operation.name} on {pattern} to {acl.principal} from {acl.host}"


def _error_of(acl: Acl) -> InvalidAcl | None:
    try:
        check_acl(acl)
    except InvalidAcl as error:
        return error
    return None


def _delete_acls(tx: CatalogTransaction, filters: Sequence[AclFilter]) -> list[list[Acl]]:
    deleted = security.delete_acls(tx, filters)
    if sum(map(len, deleted)) > ACLS_DELETED_MAX:
        raise InvalidRequest(reason=f"the filters select more than {ACLS_DELETED_MAX} ACLs")
    return deleted


def _acl(
    kind: int, pattern: int, name: str, principal: str, host: str, operation: int, permission: int
) -> Acl:
    return Acl(
        ResourceType(kind),
        PatternType(pattern),
        name,
        principal,
        host,
        AclOperation(operation),
        Permission(permission),
    )


def _alter_credentials(
    tx: CatalogTransaction, put: Sequence[ScramCredential], deleted: Sequence[tuple[str, str]]
) -> list[str]:
    """Returns the users of which nothing was deleted."""
    absent = []
    for user, mechanism in deleted:
        try:
            security.delete_credential(tx, user, mechanism)
        except UnknownUser:
            absent.append(user)
    if put:
        security.put_credentials(tx, put)
    return absent
