"""Writes `docs/reference/`: settings, errors, metrics, logs and Kafka's requests, from the code that defines them.

`python docs/generate.py` writes the pages; `tests/tidy` fails when one of them is not what this would print.
"""
# ruff: noqa: SLF001  # prometheus_client has no public way to list a metric without samples

import ast
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from prometheus_client import ProcessCollector

from millpond import settings
from millpond.frontends.kafka.errors import code_of as kafka_code_of
from millpond.frontends.kafka.registry import HANDLERS, RequestHandler
from millpond.frontends.rpc.errors import code_of as grpc_code_of
from millpond.frontends.web.errors import status_of as http_status_of
from millpond.model import errors
from millpond.model.configs import DEFINITIONS
from millpond.model.errors import MillpondError
from millpond.model.ids import AUDIT_TOPIC
from millpond.observability.events import EVENTS, FIELDS
from millpond.observability.metrics import Metrics
from millpond.observability.usage import LABELS_MAX, OTHER
from millpond.protocol import Versions
from millpond.security.audit import EVENTS as AUDIT_EVENTS

REFERENCE = Path(__file__).parent / "reference"
SOURCE = Path(__file__).parents[1] / "src"
LEVELS = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
    "critical": "CRITICAL",
}
"""The level of each method of a logger. Others, such as `log`, are not used."""
MADE = "<!-- made by docs/generate.py: change the code, then run it again -->"

TIMESTAMP_DIFFERENCES = (
    "If no record of a batch has a timestamp, the batch header stores the append time as its newest timestamp; "
    "Kafka stores -1. In Kafka a lookup by time ends at a segment of such records and returns no offset, even if "
    "a later segment has a matching record; here it returns that record.",
    "A record without a timestamp is as old as its append, so its batch is kept for the whole retention; Kafka "
    "ignores that record if another record of the batch has a timestamp, and expires the batch by that one.",
    "A newest timestamp in a header that is within 60 s of the append is used as it is. If it is too low, records"
    " expire up to 60 s early, and a lookup by time within that span skips the batch; Kafka reads every record.",
    "A record with a timestamp in the future, in a batch whose header claims a newest timestamp within 60 s of "
    "the append, expires with current records, and a lookup by its timestamp does not find it; Kafka keeps it "
    "until its own timestamp is older than the retention.",
    "Old records in a batch whose header claims a newest timestamp within 60 s of the append are kept as long as "
    "current records; Kafka expires them by their own timestamps.",
    "If a newest timestamp in a header is too high, but not more than 60 s ahead of the append, records are kept "
    "up to 60 s longer than in Kafka.",
    "Kafka checks `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms` for every record. Here, "
    "if the header's newest timestamp is within 60 s of the append, they are checked for the base and the newest "
    "timestamp of the header only; otherwise for every record.",
)
"""Each is the reason of an entry in `tests/peers/times/known.py`; a test compares the two."""

ACL_DIFFERENCES = (
    "In Kafka, ALL on the cluster includes the right to delete every topic. Here a client needs DELETE on the "
    "topic.",
    "A client that may delete a topic, but is denied DESCRIBE on it, cannot delete it in Kafka. "
    "Here DELETE is enough.",
    "In Kafka, CLUSTER_ACTION on the cluster allows OffsetForLeaderEpoch for every topic, because brokers use "
    "it. Here a client needs DESCRIBE on the topic.",
    "A produce in a transaction without rights on the transactional id: Kafka refuses the whole request with "
    "error 53. Here the topic is checked first, so its error comes first.",
    "DescribeUserScramCredentials without rights: Kafka repeats the error for each user of the request. Here it "
    "is in the response once.",
    "Configs of groups do not exist here, and those of a broker cannot be changed while it runs: a client with "
    "the rights gets error 42.",
    "If a client has the rights, and several things that its request names do not exist, the error may name "
    "another one of them.",
    "CreateAcls with a code that only filters may have: Kafka responds with UNKNOWN_SERVER_ERROR. Here it is "
    "error 42.",
    "CreateAcls with an empty host: Kafka stores an ACL that no client can match. Here it is error 42.",
    "CreateAcls for the cluster `*`: Kafka refuses it. Here it is the same as `kafka-cluster`.",
)
"""Each is a reason in `tests/peers/acl_known.py`; a test compares the two."""

GROUP_DIFFERENCES = (
    "Assignors go through members and topics by id; Kafka's coordinator does so in the order of hash maps. "
    "`range` assigns the same partitions. `uniform` gives members as many partitions as Kafka's and moves as "
    "many. Where subscriptions differ, ties are broken in that order, and sizes may depend on it; the "
    "assignments are the same as Kafka's with its maps sorted by id (`tests/peers/test_assignors.py`).",
)

AUDIT_FIELDS = {
    "time": "When it happened, in UTC, with milliseconds.",
    "event": "One of the events below.",
    "principal": "Who did it, such as `User:alice`; `Broker:1` for what a broker did by itself; empty if unknown.",
    "address": "IP address of the client; empty for what a broker did by itself.",
    "resource": "What it was done to. Never a secret.",
    "outcome": "`success`, `failure` or `denied`.",
    "interface": "Logins only: `kafka`, `grpc` or `http`.",
    "method": "Logins only: the SASL mechanism, `basic`, `bearer` or `certificate`.",
    "reason": "Why it was denied or failed, where that is known.",
    "broker": "Node id of the broker that recorded it.",
}


class Limit(NamedTuple):
    meaning: str
    code: str
    """`module.NAME` in `millpond`, or `module.Class.field` for a field with a default."""
    unit: str = ""

    @property
    def value(self) -> str:
        module, _, name = self.code.rpartition(".")
        if module.rpartition(".")[2][:1].isupper():
            module, _, kind = module.rpartition(".")
            found = getattr(getattr(import_module(f"millpond.{module}"), kind)(), name)
        else:
            found = getattr(import_module(f"millpond.{module}"), name)
        return f"{found:,} {self.unit}".rstrip()


SECURITY_LIMITS = {
    "Before a client has authenticated": [
        Limit(
            "TLS handshakes at a time, per listener; beyond it the oldest of the address with most of them ends",
            "security.listener.HandshakeLimits.handshakes_max",
        ),
        Limit(
            "TLS handshakes at a time of one IPv4 address or IPv6 /64 network",
            "security.listener.HandshakeLimits.per_address_max",
        ),
        Limit("Duration of a handshake", "security.listener.HandshakeLimits.timeout_s", "s"),
        Limit(
            "Duration of closing a TLS connection", "security.listener.HandshakeLimits.close_timeout_s", "s"
        ),
        Limit("Connections that the kernel holds until they are accepted", "security.listener.BACKLOG"),
        Limit("Connections accepted before other clients are served", "security.listener.ACCEPTS_PER_TURN"),
        Limit(
            "Kafka: size of a request", "frontends.kafka.limits.KafkaLimits.login_frame_bytes_max", "bytes"
        ),
        Limit(
            "Kafka: time from the connection to the end of the login",
            "frontends.kafka.limits.KafkaLimits.login_ms",
            "ms",
        ),
        Limit(
            "Kafka: delay of the response to a failed login",
            "frontends.kafka.limits.KafkaLimits.failed_login_delay_ms",
            "ms",
        ),
        Limit("HTTP and gRPC: delay of the response to a wrong proof", "security.gate.FAILURE_DELAY_S", "s"),
        Limit("HTTP: size of a request's headers", "frontends.web.limits.WebLimits.head_bytes_max", "bytes"),
        Limit(
            "Kafka: time between two logins on one connection",
            "frontends.kafka.authentication.REAUTHENTICATION_EVERY_MS",
            "ms",
        ),
    ],
    "Proofs": [
        Limit("Size of a SASL PLAIN message or a Basic header", "security.plain.MESSAGE_BYTES_MAX", "bytes"),
        Limit("Size of a SCRAM message", "security.scram.MESSAGE_BYTES_MAX", "bytes"),
        Limit("Password checks (PLAIN, Basic) that run at a time", "security.plain.CHECKS_MAX"),
        Limit("Password checks that run or wait; further ones are refused", "security.plain.WAITING_MAX"),
        Limit(
            "Those of one IPv4 address or IPv6 /64 network; further ones are refused",
            "security.plain.WAITING_PER_ADDRESS_MAX",
        ),
        Limit(
            "Time for which a successful password check is remembered", "security.plain.REMEMBERED_MS", "ms"
        ),
        Limit("Successful password checks that are remembered", "security.plain.REMEMBERED_MAX"),
        Limit("Size of a password", "security.scram.PASSWORD_BYTES_MAX", "bytes"),
        Limit("Iterations of a stored password, at least", "security.scram.ITERATIONS_MIN"),
        Limit("Iterations of a stored password, at most", "security.scram.ITERATIONS_MAX"),
        Limit("Size of the salt of a stored password", "security.scram.SALT_BYTES_MAX", "bytes"),
        Limit("Length of the name of a user", "security.names.USER_CHARS_MAX", "characters"),
        Limit("Length of a name in a certificate or JWT", "security.names.NAME_CHARS_MAX", "characters"),
        Limit("Size of a JWT", "security.limits.TOKEN_BYTES_MAX", "bytes"),
        Limit("Difference of clocks that a JWT may have", "security.jwt.SKEW_MS", "ms"),
        Limit("Latest expiry of a JWT, in seconds since 1970", "security.jwt.SECONDS_MAX"),
        Limit("Size of a JWK set", "security.jwks.SET_BYTES_MAX", "bytes"),
        Limit("Keys of a JWK set", "security.jwks.KEYS_MAX"),
        Limit(
            "Size of a response of an identity provider", "security.https_client.RESPONSE_BYTES_MAX", "bytes"
        ),
        Limit("OIDC logins at a time at the provider", "security.oidc.EXCHANGES_MAX"),
        Limit(
            "OIDC logins that run or wait; further ones are refused", "security.oidc.EXCHANGES_WAITING_MAX"
        ),
        Limit("Length of an authorization code", "security.oidc.CODE_CHARS_MAX", "characters"),
        Limit("Length of the cookie of an OIDC login", "security.oidc.COOKIE_CHARS_MAX", "characters"),
        Limit("Size of an RSA key, at least", "security.jwks.RSA_BITS_MIN", "bits"),
        Limit("Duration of a request to an identity provider", "security.https_client.TIMEOUT_S", "s"),
        Limit(
            "Time for which a JWK set is used while it cannot be loaded again", "security.jwks.STALE_MS", "ms"
        ),
        Limit("Size of a PEM file", "security.certificates.FILE_BYTES_MAX", "bytes"),
        Limit(
            "Length of a common name in a development certificate",
            "security.development_ca.COMMON_NAME_MAX",
            "characters",
        ),
        Limit("Lifetime of a broker's proof to another broker", "security.broker_tokens.LIFETIME_MS", "ms"),
    ],
    "What is stored": [
        Limit("Passwords: one for each user and SCRAM mechanism", "catalog.security.CREDENTIALS_MAX"),
        Limit("API tokens", "catalog.security.TOKENS_MAX"),
        Limit("ACLs", "catalog.security.ACLS_MAX"),
        Limit("Quotas", "catalog.security.QUOTAS_MAX"),
        Limit("Sessions of browsers", "catalog.sessions.SESSIONS_MAX"),
        Limit("Sessions of browsers of one user", "catalog.sessions.SESSIONS_PER_USER_MAX"),
        Limit("Time without use after which a session ends", "catalog.sessions.IDLE_MS", "ms"),
        Limit("Time after which a session ends", "security.sessions.LIFETIME_MS", "ms"),
        Limit("ACLs that one request deletes", "service.security_administration.ACLS_DELETED_MAX"),
    ],
    "What a broker keeps in memory": [
        Limit("Rights of a principal and address", "security.view.RIGHTS_CACHED_MAX"),
        Limit("Decisions for each of them, by name of the resource", "security.rights.NAMES_CACHED_MAX"),
        Limit("Length of the name of such a resource", "security.rights.NAME_CACHED_CHARS_MAX", "characters"),
        Limit("Client addresses with counted connections", "security.addresses.ADDRESSES_MAX"),
        Limit("Ended sessions of browsers", "security.sessions.ENDED_MAX"),
        Limit(
            "Delay of a connection whose address opens them too fast", "security.addresses.DELAY_MS_MAX", "ms"
        ),
        Limit("Quota counters", "security.quotas.BUCKETS_MAX"),
        Limit("Clients with known quotas", "security.quotas.CLIENTS_MAX"),
    ],
    "The audit log": [
        Limit("Different denials per minute and principal", "security.audit.DENIALS_PER_MINUTE_MAX"),
        Limit("Failed logins per minute, of all clients", "security.audit.FAILURES_PER_MINUTE_MAX"),
        Limit(
            "Time between two events of the same HTTP or gRPC login", "security.audit.LOGINS_EVERY_MS", "ms"
        ),
        Limit("HTTP and gRPC logins that are remembered for this", "security.audit.LOGINS_REMEMBERED_MAX"),
        Limit("Events that wait for the topic `__audit`", "service.audit_topic.QUEUED_MAX"),
        Limit("Events in one batch of that topic", "service.audit_topic.EVENTS_PER_BATCH_MAX"),
        Limit("Size of one batch of that topic", "service.audit_topic.BATCH_BYTES_MAX", "bytes"),
        Limit(
            "Size of a value in an event of that topic, as JSON",
            "service.audit_topic.TEXT_BYTES_MAX",
            "bytes",
        ),
    ],
}
"""`tests/tidy` fails if `security/` has a limit that is not listed here."""


def pages() -> dict[str, str]:
    return {
        "settings.md": "\n".join(_settings_page()) + "\n",
        "errors.md": "\n".join(_errors_page()) + "\n",
        "metrics.md": "\n".join(_metrics_page()) + "\n",
        "logs.md": "\n".join(_logs_page()) + "\n",
        "audit.md": "\n".join(_audit_page()) + "\n",
        "limits.md": "\n".join(_limits_page()) + "\n",
        "kafka.md": "\n".join(_kafka_page()) + "\n",
    }


def _settings_page() -> Iterator[str]:
    yield from ("# Settings", "", MADE, "")
    yield "A value comes from the nearest of: a flag (`--set name=value`), the environment, a TOML file (`--config`),"
    yield "the default. Durations are written `250ms`, `10s`, `1h30m`, `7d`; sizes `512`, `16KiB`, `8MiB`."
    yield from ("", "| setting | environment | kind | default | meaning |", "|---|---|---|---|---|")
    shown = settings.Settings().shown()
    for name in settings.names():
        default = f"`{shown[name]}`" if shown[name] else "(empty)"
        kind, meaning = settings.kind_of(name).name, settings.meaning_of(name)
        yield f"| `{name}` | `{settings.variable_of(name)}` | {kind} | {default} | {meaning} |"
    yield ""
    for old, new in settings.RENAMED.items():
        former = f"`{old}` (`{settings.variable_of(old)}`)"
        yield f"{former} is the former name of `{new}`; it is still accepted, with a warning."


def _errors_page() -> Iterator[str]:
    yield from ("# Errors", "", MADE, "")
    yield "Every error the engine raises on purpose. Names in braces are facts, also found in `error.facts`."
    yield "*Retriable* says whether the same request may succeed later. Each interface has its own form: Kafka a code,"
    yield "gRPC a status (with the name as the reason of a google.rpc.ErrorInfo: `UNKNOWN_TOPIC`), HTTP a status (with"
    yield "the name as `code`, except for `TopicExists`, which is `TopicAlreadyExistsException`)."
    yield "In Python, `millpond.errors` has those that a client can meet."
    yield from (
        "",
        "| error | kind of | retriable | Kafka | gRPC | HTTP | says |",
        "|---|---|---|---|---|---|---|",
    )
    for kind in error_classes():
        parent = "" if kind is MillpondError else f"`{kind.__bases__[0].__name__}`"
        says = " ".join((kind.__doc__ or "").split()).replace("|", "\\|")
        error = kind()
        forms = f"{kafka_code_of(error).name} | {grpc_code_of(error).name} | {http_status_of(error)}"
        yield f"| `{kind.__name__}` | {parent} | {'yes' if kind.retriable else 'no'} | {forms} | {says} |"


def _metrics_page() -> Iterator[str]:
    yield from ("# Metrics", "", MADE, "")
    yield "In Prometheus' text format, at `GET /metrics`. Counters are exposed with `_total` behind their name."
    yield ""
    yield "Metrics of topics, groups and subscriptions are read from the catalog when the page is requested, at most"
    yield f"every 5 s. Each names at most {LABELS_MAX} of them, those with the largest values; `{OTHER}` is the sum of"
    yield "the rest. Values are sums over the partitions that a broker owns, so sum them over the brokers."
    yield ""
    yield "Of the process: `process_cpu_seconds_total`, `process_resident_memory_bytes`, "
    yield "`process_virtual_memory_bytes`, `process_start_time_seconds`, `process_open_fds` and `process_max_fds`."
    yield from ("", "| metric | kind | labels | meaning |", "|---|---|---|---|")
    for metric in metrics():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.name}` | {metric.type} | {labels} | {metric.documentation} |"


def _audit_page() -> Iterator[str]:
    yield from ("# The audit log", "", MADE, "")
    yield "With `security=on`, the logger `millpond.security.audit` writes every event below as a line of the broker's"
    yield "log; `--log-format json` makes one JSON object of each. `insecure listener` needs no `security=on`."
    yield ""
    yield f"With `audit_topic=true` the broker also writes each event to the topic `{AUDIT_TOPIC}`: one message, one"
    yield "JSON object. Clients may read the topic with READ. None may write, alter or delete it, super users included;"
    yield "the setting `audit_retention` says how long it keeps events (90 days unless set)."
    yield from ("", "```sh", f"millpond consume {AUDIT_TOPIC} --from earliest", "```", "")
    yield from ("| field | meaning |", "|---|---|")
    for name, meaning in AUDIT_FIELDS.items():
        yield f"| `{name}` | {meaning} |"
    yield from (
        "",
        "No request waits for the topic: events are queued, up to 10,000, and written in the background. What",
    )
    yield "does not fit is counted (`millpond_audit_dropped`), and an event in the topic says how many are missing. An"
    yield "event is written at least once, and events of one broker are in order."
    yield from ("", "## Events", "", "| event | meaning |", "|---|---|")
    for name, meaning in AUDIT_EVENTS.items():
        yield f"| `{name}` | {_cell(meaning)} |"


def _limits_page() -> Iterator[str]:
    yield from ("# Limits of security", "", MADE, "")
    yield "Every number that bounds what a client can make a broker do or store before and while it authenticates, and"
    yield "what operators can store. Those of the interfaces are in `limits.py` of each; quotas of clients are in"
    yield "[Secure a broker](../how-to/security.md)."
    for title, limits in SECURITY_LIMITS.items():
        yield from ("", f"## {title}", "", "| limit | value | in the code |", "|---|---|---|")
        for each in limits:
            yield f"| {_cell(each.meaning)} | {each.value} | `{each.code}` |"


def _kafka_page() -> Iterator[str]:
    yield from ("# The Kafka interface", "", MADE, "")
    yield "## Requests"
    yield from (
        "",
        "An API that is not in this table is not advertised, and a client that sends it is disconnected.",
        "",
    )
    yield from ("| key | request | versions | what it does |", "|---|---|---|---|")
    for key, handler in sorted(HANDLERS.items()):
        does, _ = said_of(handler)
        yield f"| {key} | `{name_of(handler)}` | {_versions(handler)} | {does} |"
    yield from ("", "In detail:", "")
    for _, handler in sorted(HANDLERS.items()):
        _, notes = said_of(handler)
        if notes:
            yield f"* **{name_of(handler)}.** {notes}"
    yield from _timestamps()
    yield from _acls()
    yield from _topic_configs()


def _timestamps() -> Iterator[str]:
    yield from ("", "## Timestamps: differences from Apache Kafka", "")
    yield "`python -m tests.peers.times` sends the same batches to Apache Kafka and to Millpond, and compares log"
    yield "starts, offsets by time and batch headers before and after retention. Everything that differs:"
    yield ""
    yield from (f"* {each}" for each in TIMESTAMP_DIFFERENCES)
    yield ""
    yield "Two further differences are outside this comparison. Kafka expires whole segments, Millpond batches."
    yield "Millpond keeps old records for `retention_grace` after their append, Kafka until its next check"
    yield "(`log.retention.check.interval.ms`, 5 minutes by default)."


def _acls() -> Iterator[str]:
    yield from ("", "## ACLs: differences from Apache Kafka", "")
    yield "`make test-peers` gives Apache Kafka with its StandardAuthorizer and Millpond the same random ACLs, sends"
    yield "the same requests to both, and compares error codes and authorized operations. Everything that differs:"
    yield ""
    yield from (f"* {each}" for each in ACL_DIFFERENCES)
    yield ""
    yield "## Consumer groups: differences from Apache Kafka"
    yield ""
    yield from (f"* {each}" for each in GROUP_DIFFERENCES)


def _topic_configs() -> Iterator[str]:
    yield from ("", "## Topic configs", "")
    yield "*Honoured* ones change what the broker does. *Reported* ones are checked, stored and returned,"
    yield "because tools set them and expect to read them back. Any other name is refused."
    yield from ("", "| config | effect | kind | default | meaning |", "|---|---|---|---|---|")
    for each in sorted(DEFINITIONS.values(), key=lambda each: (each.effect, each.name)):
        default = f"`{each.default}`" if each.default else "(empty)"
        yield f"| `{each.name}` | {each.effect} | {each.kind} | {default} | {each.meaning} |"


def _logs_page() -> Iterator[str]:
    yield from ("# Logs", "", MADE, "")
    yield "Every event of level WARNING and above: what caused it, and what to do. The text of an event never varies,"
    yield "so search for it; what varies is in its fields. `millpond serve` writes the log to stderr, as text or, with"
    yield "`--log-format json`, as one JSON object per line ([how to](../how-to/command-line.md#logs)). An event whose"
    yield "text begins with *unexpected error* has a traceback. It is a bug, of Millpond or of a package it uses."
    by_event: dict[str, list[LogCall]] = {}
    for call in log_calls():
        if call.is_listed:
            by_event.setdefault(call.event, []).append(call)
    for area in sorted({calls[0].area for calls in by_event.values()}):
        yield from ("", f"## {area}")
        for event in sorted(by_event, key=str.lower):
            if by_event[event][0].area == area:
                yield from _log_event(event, by_event[event])
    yield from ("", "## Fields", "", "| field | meaning |", "|---|---|")
    for name in sorted(FIELDS):
        yield f"| `{name}` | {FIELDS[name]} |"


def _log_event(event: str, calls: list["LogCall"]) -> Iterator[str]:
    fields = dict.fromkeys(name for call in calls for name in call.fields)
    loggers = " and ".join(dict.fromkeys(f"`{call.module}`" for call in calls))
    yield from ("", f"### {event}", "")
    with_fields = f"; fields: {', '.join(f'`{name}`' for name in fields)}" if fields else ""
    yield f"{calls[0].level}, from {loggers}{with_fields}"
    yield from ("", f"* **Cause:** {EVENTS[event].cause}", f"* **Remedy:** {EVENTS[event].remedy}")


@dataclass(frozen=True, slots=True)
class LogCall:
    """A call of a logger in the source."""

    path: Path
    line: int
    method: str
    node: ast.Call

    @property
    def module(self) -> str:
        parts = self.path.relative_to(SOURCE).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    @property
    def area(self) -> str:
        return self.module.split(".")[1]

    @property
    def level(self) -> str:
        return LEVELS[self.method]

    @property
    def is_listed(self) -> bool:
        return logging.getLevelName(self.level) >= logging.WARNING

    @property
    def event(self) -> str:
        """Empty if it is not written out."""
        first = self.node.args[0] if self.node.args else None
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""

    @property
    def extra(self) -> ast.expr | None:
        return next((each.value for each in self.node.keywords if each.arg == "extra"), None)

    @property
    def fields(self) -> list[str]:
        """Those that are written out."""
        keys = self.extra.keys if isinstance(self.extra, ast.Dict) else []
        return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


def log_calls() -> list[LogCall]:
    """In the order of files and lines: calls of what is called `logger`, or was made by `logging.getLogger`."""
    return [call for path in sorted(SOURCE.rglob("*.py")) for call in calls_in(path, path.read_text())]


def calls_in(path: Path, text: str) -> list[LogCall]:
    nodes = list(ast.walk(ast.parse(text)))
    made = [each for each in nodes if isinstance(each, ast.Assign) and _makes_logger(each.value)]
    names = {target.id for each in made for target in each.targets if isinstance(target, ast.Name)}
    calls = [each for each in nodes if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    found = [each for each in calls if _is_logger(each.func.value, names | {"logger", "logging"})]
    logs = [each for each in found if each.func.attr in {*LEVELS, "log", "warn", "fatal"}]
    return [
        LogCall(path, each.lineno, each.func.attr, each)
        for each in sorted(logs, key=lambda each: each.lineno)
    ]


def _makes_logger(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "getLogger"
    )


def _is_logger(node: ast.expr, names: set[str]) -> bool:
    return (isinstance(node, ast.Name) and node.id in names) or _makes_logger(node)


def _versions(handler: RequestHandler) -> str:
    """Those that are served; and those that are advertised, where a client needs to see more than is true."""
    served, advertised = span(handler.request.versions), span(handler.advertised)
    return served if served == advertised else f"{served} (advertised as {advertised})"


def span(versions: Versions) -> str:
    return str(versions.first) if versions.first == versions.last else f"{versions.first}-{versions.last}"


def name_of(handler: RequestHandler) -> str:
    return handler.request.__name__.removesuffix("Request")


def said_of(handler: RequestHandler) -> tuple[str, str]:
    """What the docstring of a handler's module says: in one sentence or two behind key and versions, and beyond."""
    text = sys.modules[handler.begin.__module__].__doc__ or ""
    first, _, notes = text.strip().partition("\n\n")
    does = " ".join(first.split()).partition(": ")[2]
    return _cell(does[:1].upper() + does[1:]), _cell(" ".join(notes.split()))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def error_classes() -> list[type[MillpondError]]:
    """In the order of their definition, so that families stay together."""
    found = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return [kind for kind in found if issubclass(kind, MillpondError)]


class DescribedMetric(NamedTuple):
    name: str
    type: str
    labels: tuple[str, ...]
    documentation: str


def metrics() -> list[DescribedMetric]:
    """All metrics but those of the process."""
    found = [
        DescribedMetric(
            metric.name,
            metric.type,
            tuple((collector if hasattr(collector, "_labelnames") else metric)._labelnames),
            metric.documentation,
        )
        for collector in Metrics().registry._collector_to_names
        if not isinstance(collector, ProcessCollector)
        for metric in collector.describe()
    ]
    return sorted(found)


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)
