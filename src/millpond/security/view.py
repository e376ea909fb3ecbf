"""The users, tokens, ACLs and quotas as this broker last read them from the catalog.

A broker reads the version once per `REFRESH_S`, and everything when it has changed, so a revocation takes effect on
every broker within about a second. Lives on one event loop; the snapshot is replaced as a whole.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from millpond.catalog import security
from millpond.catalog.security import ApiToken, ScramCredential, SecurityRows
from millpond.model.acls import EVERY_USER, Acl, AclOperation, PatternType, Permission, ResourceType
from millpond.model.addresses import client_address
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError, NotAuthorized
from millpond.model.principals import BROKER, Principal
from millpond.observability.metrics import QuotaMetrics
from millpond.security.access import OPEN_ACCESS, Access
from millpond.security.audit import AuditLog
from millpond.security.decoys import Decoys
from millpond.security.identity import SCRAM, TOKEN, Identity
from millpond.security.quotas import QuotaLimiter
from millpond.security.rights import Rights
from millpond.security.sessions import Sessions
from millpond.topology.catalog_access import ReadCatalog

REFRESH_S: Final = 0.5
CATCH_UP_S: Final = 0.1
"""Minimum time between two reads that refused clients cause."""
RIGHTS_CACHED_MAX: Final = 10_000
ANY_BROKER: Final = Acl(
    ResourceType.CLUSTER,
    PatternType.LITERAL,
    "*",
    "",
    "*",
    AclOperation.CLUSTER_ACTION,
    Permission.ALLOW,
)
"""What a broker may do at another one, with its own principal."""

logger = logging.getLogger(__name__)


class SecurityView:
    """Call `refresh` before the first client is served, and `run` afterwards."""

    def __init__(
        self,
        read: ReadCatalog,
        *,
        enabled: bool,
        super_users: Collection[Principal] = (),
        clock: Clock,
        audit: AuditLog | None = None,
        read_only_topics: Collection[str] = (),
        metrics: QuotaMetrics | None = None,
        sessions: Sessions | None = None,
    ) -> None:
        """`read_only_topics` are written by the broker only, whatever the ACLs say."""
        self.enabled = enabled
        self.version = -1
        self.secret = b""
        self._read = read
        self._clock = clock
        self._sessions = sessions
        self.audit = audit or AuditLog(clock)
        self._read_only_topics = frozenset(read_only_topics)
        self.quotas = QuotaLimiter(clock, metrics)
        self._super_users = frozenset(super_users)
        self._credentials: Mapping[tuple[str, str], ScramCredential] = {}
        self.decoys = Decoys()
        self._tokens: Mapping[str, ApiToken] = {}
        self.acls: tuple[Acl, ...] = ()
        self._acls_by_principal: Mapping[str, Sequence[Acl]] = {}
        self._rights: dict[tuple[Principal, str], Rights] = {}
        self._catching_up = asyncio.Lock()
        self._caught_up_at = -CATCH_UP_S

    # -- clients ------------------------------------------------------------------------------------------------

    def access(self, identity: Identity, host: str) -> Access:
        return Access(identity, host, self) if self.enabled else OPEN_ACCESS

    def rights(self, principal: Principal, host: str) -> Rights:
        found = self._rights.get((principal, host))
        if found is None:
            if len(self._rights) >= RIGHTS_CACHED_MAX:
                self._rights.clear()
            found = self._rights[principal, host] = self._new_rights(principal, host)
        return found

    def is_super_user(self, principal: Principal) -> bool:
        return principal in self._super_users

    def is_valid(self, identity: Identity) -> bool:
        if identity.expires_at_ms is not None and identity.expires_at_ms <= self._clock.now_ms():
            return False
        if identity.session and not (self._sessions and self._sessions.is_live(identity.session)):
            return False
        kind, _, name = identity.credential.partition(":")
        if kind == TOKEN:
            return name in self._tokens
        if kind == SCRAM:
            mechanism, _, user = name.partition(":")
            stored = self._credentials.get((user, mechanism))
            return stored is not None and stored.version == identity.credential_version
        return True

    def denied(self, principal: Principal, host: str, refusal: NotAuthorized) -> None:
        self.audit.denied(principal, host, refusal)

    def scram_credential(self, user: str, mechanism: str) -> ScramCredential | None:
        return self._credentials.get((user, mechanism))

    def token(self, token_id: str) -> ApiToken | None:
        return self._tokens.get(token_id)

    def credentials(self) -> list[ScramCredential]:
        """All credentials, ordered by user."""
        return list(self._credentials.values())

    def tokens(self) -> list[ApiToken]:
        return list(self._tokens.values())

    # -- reading ------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Read what has changed since the last read."""
        if not self.secret:
            self.secret = await self._read(security.secret)
            if self._sessions is not None:
                self._sessions.secret = self.secret
        if await self._read(security.version) != self.version:
            self.apply(await self._read(security.read))
        if self._sessions is not None:
            await self._sessions.refresh()

    async def catch_up(self) -> None:
        """Read what has changed, for a client whose proof is not accepted: another broker may have stored it a moment
        ago. Clients that call at the same time share one read, and reads keep a distance of `CATCH_UP_S`."""
        now = asyncio.get_running_loop().time
        called_at = now()
        async with self._catching_up:
            if self._caught_up_at >= called_at:
                return
            await asyncio.sleep(max(0.0, self._caught_up_at + CATCH_UP_S - now()))
            self._caught_up_at = now()
            await self._refresh_or_log()

    def apply(self, rows: SecurityRows) -> None:
        """Concurrent reads may end in another order than they began; an older one changes nothing."""
        if rows.version < self.version:
            return
        self._credentials = {(each.user, each.mechanism): each for each in rows.credentials}
        self.decoys = Decoys(rows.credentials)
        self._tokens = {each.id: each for each in rows.tokens}
        self.acls = tuple(rows.acls)
        self._acls_by_principal = _by_principal(rows.acls)
        self._rights = {}
        if self.enabled:
            self.quotas.apply(rows.quotas)
        self.version = rows.version

    async def run(self) -> None:
        """Follow the changes of other processes. Without security there is nothing to follow."""
        while self.enabled:
            await asyncio.sleep(REFRESH_S)
            await self._refresh_or_log()
            self.audit.report_left_out()

    async def _refresh_or_log(self) -> None:
        try:
            await self.refresh()
            if self._sessions is not None:
                await self._sessions.clean_when_due()
        except MillpondError as error:
            logger.warning("reading users and ACLs failed; will retry", extra={"error": str(error)})

    def _new_rights(self, principal: Principal, host: str) -> Rights:
        if principal.kind == BROKER:
            return Rights(principal, host, [ANY_BROKER._replace(principal=str(principal))])
        acls = [
            *self._acls_by_principal.get(str(principal), ()),
            *self._acls_by_principal.get(EVERY_USER, ()),
        ]
        return Rights(
            principal,
            host,
            acls,
            is_super_user=principal in self._super_users,
            read_only_topics=self._read_only_topics,
        )


def _by_principal(acls: Iterable[Acl]) -> dict[str, list[Acl]]:
    """With the hosts in the form in which the addresses of clients are compared with them."""
    found: dict[str, list[Acl]] = defaultdict(list)
    for acl in acls:
        found[acl.principal].append(acl._replace(host=client_address(acl.host)))
    return found
