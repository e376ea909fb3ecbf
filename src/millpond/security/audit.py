"""The audit log: who logged in, who was refused what, and who changed users, tokens and ACLs.

Its events are ordinary log lines of the logger `millpond.security.audit`, at level INFO, with the fields of the event:
`--log-format json` makes one JSON object of each. A denial is logged once per minute for the same principal, operation
and resource, and no more than 60 for a principal, so that a client cannot fill the disk.
"""

import logging
from typing import Final

from millpond.model.clock import Clock
from millpond.model.errors import NotAuthorized
from millpond.model.principals import Principal

DENIALS_EVERY_MS: Final = 60_000
DENIALS_PER_MINUTE_MAX: Final = 60
"""Different denials that are logged per minute and principal."""
FAILURES_PER_MINUTE_MAX: Final = 600
"""Failed logins that are logged per minute, of all clients together. The rest is counted in the metrics only."""

logger = logging.getLogger(__name__)


class AuditLog:
    """Lives on one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._denials_since = 0
        self._denials: dict[str, set[str]] = {}
        self._failures_since = 0
        self._failures = 0

    def authenticated(self, principal: Principal, *, interface: str, client: str, method: str) -> None:
        logger.info(
            "client authenticated",
            extra={"principal": str(principal), "interface": interface, "client": client, "method": method},
        )

    def session_opened(self, principal: Principal, *, client: str, method: str) -> None:
        """A browser has logged in."""
        logger.info("session opened", extra={"principal": str(principal), "client": client, "method": method})

    def session_ended(self, principal: Principal, *, client: str) -> None:
        """A browser has logged out."""
        logger.info("session ended", extra={"principal": str(principal), "client": client})

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
        if not self._is_due(str(principal), str(refusal)):
            return
        logger.info(
            "access denied", extra={"principal": str(principal), "client": client, "reason": str(refusal)}
        )

    def _is_due(self, principal: str, refusal: str) -> bool:
        now = self._clock.monotonic_ms()
        if now - self._denials_since >= DENIALS_EVERY_MS:
            self._denials_since, self._denials = now, {}
        of_principal = self._denials.setdefault(principal, set())
        if refusal in of_principal or len(of_principal) >= DENIALS_PER_MINUTE_MAX:
            return False
        of_principal.add(refusal)
        return True

    def changed(self, principal: Principal, client: str, change: str, name: str) -> None:
        """A change of users, tokens or ACLs, such as `token created`; `name` is what was changed, never a secret."""
        logger.info(
            "security changed",
            extra={"principal": str(principal), "client": client, "change": change, "subject": name},
        )
