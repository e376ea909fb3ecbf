"""The audit log: who logged in, who was refused what, and who changed users, tokens and ACLs.

Its events are ordinary log lines of the logger `millpond.security.audit`, at level INFO, with the fields of the event:
`--log-format json` makes one JSON object of each. Denials are repeated at most once per minute for the same principal,
operation and resource, so that a client cannot fill the disk.
"""

import logging
from typing import Final

from millpond.model.clock import Clock
from millpond.model.errors import NotAuthorized
from millpond.model.principals import Principal

DENIALS_EVERY_MS: Final = 60_000
DENIALS_REMEMBERED_MAX: Final = 10_000
FAILURES_PER_MINUTE_MAX: Final = 600
"""Failed logins that are logged per minute, of all clients together. The rest is counted in the metrics only."""

logger = logging.getLogger(__name__)


class AuditLog:
    """Lives on one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._denied_at: dict[tuple[str, str], int] = {}
        self._failures_since = 0
        self._failures = 0

    def authenticated(self, principal: Principal, *, interface: str, client: str, method: str) -> None:
        logger.info(
            "client authenticated",
            extra={"principal": str(principal), "interface": interface, "client": client, "method": method},
        )

    def authentication_failed(self, *, interface: str, client: str, method: str) -> None:
        """The name that the client gave is not logged: people type their password into the wrong field."""
        now = self._clock.monotonic_ms()
        if now - self._failures_since >= DENIALS_EVERY_MS:
            self._failures_since, self._failures = now, 0
        self._failures += 1
        if self._failures <= FAILURES_PER_MINUTE_MAX:
            logger.info(
                "authentication failed", extra={"interface": interface, "client": client, "method": method}
            )

    def denied(self, principal: Principal, client: str, refusal: NotAuthorized) -> None:
        now, what = self._clock.monotonic_ms(), (str(principal), str(refusal))
        last = self._denied_at.get(what)
        if last is not None and now - last < DENIALS_EVERY_MS:
            return
        if len(self._denied_at) >= DENIALS_REMEMBERED_MAX:
            self._denied_at.clear()
        self._denied_at[what] = now
        logger.info(
            "access denied", extra={"principal": str(principal), "client": client, "reason": str(refusal)}
        )

    def changed(self, principal: Principal, client: str, change: str, name: str) -> None:
        """A change of users, tokens or ACLs, such as `token created`; `name` is what was changed, never a secret."""
        logger.info(
            "security changed",
            extra={"principal": str(principal), "client": client, "change": change, "subject": name},
        )
