"""The audit log: who logged in, who was refused what, and who changed users, rights, topics and brokers.

Its events are ordinary log lines of the logger `millpond.security.audit`, at level INFO, with the fields of the event:
`--log-format json` makes one JSON object of each. A recorder, such as the topic `__audit`, gets the same events. A
denial is recorded once per minute for the same principal, operation and resource, and no more than 60 for a principal,
so that a client cannot fill the disk. What is left out for such a limit is counted, and `report_left_out` records the
number.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from millpond.model.clock import Clock
from millpond.model.errors import NotAuthorized
from millpond.model.principals import BROKER, Principal
from millpond.observability.metrics import SecurityMetrics

DENIALS_EVERY_MS: Final = 60_000
DENIALS_PER_MINUTE_MAX: Final = 60
"""Different denials that are recorded per minute and principal."""
FAILURES_PER_MINUTE_MAX: Final = 600
"""Failed logins that are recorded per minute, of all clients together. The rest is counted."""
LEFT_OUT_EVERY_MS: Final = 60_000
"""Events that were left out are counted for this time before their number is recorded."""
LOGINS_EVERY_MS: Final = 3_600_000
LOGINS_REMEMBERED_MAX: Final = 10_000
"""HTTP and gRPC clients prove who they are with every request: a login is recorded once per hour for the same
principal, interface, address and method. When more are remembered, all are forgotten."""

SUCCESS: Final = "success"
FAILURE: Final = "failure"
DENIED: Final = "denied"

AUTHENTICATED: Final = "client authenticated"
AUTHENTICATION_FAILED: Final = "authentication failed"
ACCESS_DENIED: Final = "access denied"
INSECURE: Final = "insecure listener"
DROPPED: Final = "audit events dropped"

EVENTS: Final[Mapping[str, str]] = {
    AUTHENTICATED: "A client logged in. Kafka: once per connection; HTTP and gRPC: once per hour for the same "
    "principal, interface, address and method.",
    AUTHENTICATION_FAILED: "A client sent a wrong proof. The name that it gave is not recorded. At most 600 per "
    "minute of all clients.",
    "audit events left out": "There were more failed logins or denials than are recorded, or denials that repeat "
    "one that is. `resource` is their numbers. At most once per minute.",
    "session opened": "A browser logged in.",
    "session ended": "A browser logged out.",
    "sessions ended": "An administrator ended the browser sessions of a user. `resource` is the user.",
    ACCESS_DENIED: "A client lacked a right; `reason` says which. Once per minute for the same principal and reason, "
    "and at most 60 per minute and principal.",
    "password set": "A user was created, or got another password. `resource` is the user.",
    "password deleted": "One SCRAM mechanism of a user was deleted. `resource` is the user.",
    "user deleted": "All passwords of a user were deleted.",
    "token created": "An API token was created. `resource` has its id and its principal.",
    "token deleted": "An API token was deleted.",
    "ACL created": "`resource` is the ACL.",
    "ACL deleted": "`resource` is the ACL.",
    "quota changed": "Quotas were set or removed. `resource` is their user, client id or address.",
    "topic created": "Also when producing created it, or a broker created it for dead letters.",
    "topic deleted": "`resource` is the topic.",
    "partitions added": "`resource` is the topic and its new partition count.",
    "configs changed": "`resource` is the topic, group or broker, and the names of its changed configs.",
    "records deleted": "A client deleted the messages below an offset.",
    "broker drained": "A broker hands over what it owns. `resource` is its node id.",
    "drain undone": "A drained broker may own partitions again.",
    "rebalance requested": "All brokers check what they should hand over.",
    "certificate reloaded": "The broker uses a new certificate for new connections. `resource` is its file.",
    "certificate refused": "A changed certificate cannot be used, for `reason`; the broker keeps the old one.",
    INSECURE: "The broker started with `insecure`, and listens beyond this machine without authentication or TLS. "
    "`resource` is its addresses.",
    DROPPED: "The topic could not be written fast enough, or refused an event. `resource` is the number of events that "
    "it lacks; the log on stderr has them.",
}
"""Every event, with its meaning. `docs/reference/audit.md` is generated from it."""

logger = logging.getLogger(__name__)


class AuditEvent(NamedTuple):
    time_ms: int
    event: str
    principal: str
    address: str
    """Address of the client; empty for what the broker does by itself."""
    resource: str
    outcome: str
    details: Mapping[str, str] = {}
    """Depends on the event: `interface`, `method`, `reason`."""


Recorder = Callable[[AuditEvent], None]
"""Called on the event loop for each event. It must neither block nor fail."""


def _no_recorder(event: AuditEvent) -> None:
    """The log lines are all there is."""


class AuditLog:
    """Lives on one event loop. Unless it is `enabled`, changes are not recorded: without security every client is
    anonymous."""

    def __init__(
        self,
        clock: Clock,
        *,
        enabled: bool = True,
        metrics: SecurityMetrics | None = None,
        recorder: Recorder = _no_recorder,
    ) -> None:
        self.recorder = recorder
        self._clock = clock
        self._enabled = enabled
        self._metrics = metrics
        self._denials_since = 0
        self._denials: dict[str, set[str]] = {}
        self._failures_since = 0
        self._failures = 0
        self._failures_left_out = 0
        self._denials_left_out = 0
        self._left_out_since: int | None = None
        """When the first of these was left out."""
        self._logins: dict[tuple[Principal, str, str, str], int] = {}

    # -- clients ------------------------------------------------------------------------------------------------

    def authenticated(self, principal: Principal, *, interface: str, client: str, method: str) -> None:
        logger.info(
            "client authenticated",
            extra={"principal": str(principal), "interface": interface, "client": client, "method": method},
        )
        details = {"interface": interface, "method": method}
        self._record(AUTHENTICATED, str(principal), client, "", SUCCESS, details)

    def request_authenticated(
        self, principal: Principal, *, interface: str, client: str, method: str
    ) -> None:
        """Like `authenticated`, for clients that prove who they are with every request."""
        key, now = (principal, interface, client, method), self._clock.monotonic_ms()
        last = self._logins.get(key)
        if last is not None and now - last < LOGINS_EVERY_MS:
            return
        if len(self._logins) >= LOGINS_REMEMBERED_MAX:
            self._logins.clear()
        self._logins[key] = now
        self.authenticated(principal, interface=interface, client=client, method=method)

    def session_opened(self, principal: Principal, *, client: str, method: str) -> None:
        """A browser has logged in."""
        logger.info("session opened", extra={"principal": str(principal), "client": client, "method": method})
        details = {"interface": "http", "method": method}
        self._record("session opened", str(principal), client, "", SUCCESS, details)

    def session_ended(self, principal: Principal, *, client: str) -> None:
        """A browser has logged out."""
        logger.info("session ended", extra={"principal": str(principal), "client": client})
        self._record("session ended", str(principal), client, "", SUCCESS)

    def authentication_failed(self, *, interface: str, client: str, method: str) -> None:
        """The name that the client gave is not logged: people type their password into the wrong field."""
        if self._metrics is not None:
            self._metrics.authentication_failures.labels(interface).inc()
        now = self._clock.monotonic_ms()
        if now - self._failures_since >= DENIALS_EVERY_MS:
            self._failures_since, self._failures = now, 0
        self._failures += 1
        if self._failures <= FAILURES_PER_MINUTE_MAX:
            logger.info(
                "authentication failed", extra={"interface": interface, "client": client, "method": method}
            )
            details = {"interface": interface, "method": method}
            self._record(AUTHENTICATION_FAILED, "", client, "", FAILURE, details)
        else:
            self._failures_left_out += 1
            self._begin_left_out(now)

    def denied(self, principal: Principal, client: str, refusal: NotAuthorized) -> None:
        if self._metrics is not None:
            self._metrics.authorization_denials.inc()
        if not self._is_due(str(principal), str(refusal)):
            self._denials_left_out += 1
            self._begin_left_out(self._clock.monotonic_ms())
            return
        logger.info(
            "access denied", extra={"principal": str(principal), "client": client, "reason": str(refusal)}
        )
        self._record(
            ACCESS_DENIED,
            str(principal),
            client,
            _resource_of(refusal),
            DENIED,
            {"reason": str(refusal)},
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

    def report_left_out(self) -> None:
        """Record how many events were left out, if any. Call it regularly."""
        since = self._left_out_since
        if since is None or self._clock.monotonic_ms() - since < LEFT_OUT_EVERY_MS:
            return
        failures, denials = self._failures_left_out, self._denials_left_out
        self._failures_left_out, self._denials_left_out, self._left_out_since = 0, 0, None
        logger.info("audit events left out", extra={"failures": failures, "denials": denials})
        self._record("audit events left out", "", "", f"{failures} failed logins, {denials} denials", FAILURE)

    def _begin_left_out(self, now: int) -> None:
        if self._left_out_since is None:
            self._left_out_since = now

    # -- changes ------------------------------------------------------------------------------------------------

    def changed(self, principal: Principal, client: str, change: str, name: str) -> None:
        """A change, such as `token created`: one of `EVENTS`. `name` is what was changed, never a secret."""
        if not self._enabled:
            return
        logger.info(
            "administrative change",
            extra={"principal": str(principal), "client": client, "change": change, "subject": name},
        )
        self._record(change, str(principal), client, name, SUCCESS)

    def certificate_reloaded(self, node_id: int, path: str) -> None:
        """`security/tls.py` logs it."""
        self._record("certificate reloaded", str(broker_principal(node_id)), "", path, SUCCESS)

    def certificate_refused(self, node_id: int, path: str, reason: str) -> None:
        """`security/tls.py` logs it."""
        principal = str(broker_principal(node_id))
        self._record("certificate refused", principal, "", path, FAILURE, {"reason": reason})

    def insecure(self, node_id: int, addresses: str) -> None:
        """A warning, because every client of the network has access, or can read passwords."""
        principal = str(broker_principal(node_id))
        logger.warning(
            "listening beyond this machine without security and TLS, because insecure is set",
            extra={"principal": principal, "address": addresses},
        )
        self._record(INSECURE, principal, "", addresses, SUCCESS)

    def _record(
        self,
        event: str,
        principal: str,
        address: str,
        resource: str,
        outcome: str,
        details: Mapping[str, str] | None = None,
    ) -> None:
        self.recorder(
            AuditEvent(self._clock.now_ms(), event, principal, address, resource, outcome, details or {})
        )


def broker_principal(node_id: int) -> Principal:
    """For what a broker does by itself."""
    return Principal(BROKER, str(node_id))


def _resource_of(refusal: NotAuthorized) -> str:
    """Such as `topic orders`; `cluster` if the refusal names none."""
    for kind in ("topic", "group", "transactional_id"):
        if kind in refusal.facts:
            return f"{kind.replace('_', ' ')} {refusal.facts[kind]}"
    return "cluster"
