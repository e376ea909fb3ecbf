"""Writes `docs/reference/`: settings, errors, metrics, logs and Kafka's requests, from the code that defines them.

`python docs/generate.py` writes the pages; `tests/tidy` fails when one of them is not what this would print.
"""
# ruff: noqa: SLF001  # prometheus_client has no public way to list a metric without samples

import ast
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millpond import settings
from millpond.frontends.kafka.errors import code_of as kafka_code_of
from millpond.frontends.kafka.registry import HANDLERS, RequestHandler
from millpond.frontends.rpc.errors import code_of as grpc_code_of
from millpond.frontends.web.errors import status_of as http_status_of
from millpond.model import errors
from millpond.model.configs import DEFINITIONS
from millpond.model.errors import MillpondError
from millpond.observability.events import EVENTS, FIELDS
from millpond.observability.metrics import Metrics
from millpond.protocol import Versions

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


def pages() -> dict[str, str]:
    return {
        "settings.md": "\n".join(_settings_page()) + "\n",
        "errors.md": "\n".join(_errors_page()) + "\n",
        "metrics.md": "\n".join(_metrics_page()) + "\n",
        "logs.md": "\n".join(_logs_page()) + "\n",
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
    yield "In Prometheus' text format. Counters are exposed with `_total` behind their name."
    yield from ("", "| metric | kind | labels | meaning |", "|---|---|---|---|")
    for metric in metrics():
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        yield f"| `{metric._name}` | {metric._type} | {labels} | {metric._documentation} |"


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


def metrics() -> list:
    registry = Metrics().registry
    collectors = {id(each): each for each in registry._names_to_collectors.values()}
    return sorted(collectors.values(), key=lambda each: each._name)


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text)
