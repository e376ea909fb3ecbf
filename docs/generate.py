"""Writes `docs/reference/`: settings, errors and metrics, from the code that defines them.

`python docs/generate.py` writes the pages; `tests/tidy` fails when one of them is not what this would print.
"""
# ruff: noqa: SLF001  # prometheus_client has no public way to list a metric without samples

from collections.abc import Iterator
from pathlib import Path

from millpond import settings
from millpond.model import errors
from millpond.model.errors import MillpondError
from millpond.observability.metrics import Metrics

REFERENCE = Path(__file__).parent / "reference"
MADE = "<!-- made by docs/generate.py: change the code, then run it again -->"


def pages() -> dict[str, str]:
    return {
        "settings.md": "\n".join(_settings_page()) + "\n",
        "errors.md": "\n".join(_errors_page()) + "\n",
        "metrics.md": "\n".join(_metrics_page()) + "\n",
    }


def _settings_page() -> Iterator[str]:
    yield from ("# Settings", "", MADE, "")
    yield "A value comes from the nearest of: a flag (`--set name=value`), the environment, a TOML file (`--config`),"
    yield "the default. Durations are written `250ms`, `10s`, `1h30m`, `7d`; sizes `512`, `16KiB`, `8MiB`."
    yield from ("", "| setting | environment | kind | default | meaning |", "|---|---|---|---|---|")
    shown = settings.Settings().shown()
    for name in settings.names():
        variable = settings.ENVIRONMENT_PREFIX + name.upper()
        default = f"`{shown[name]}`" if shown[name] else "(empty)"
        kind, meaning = settings.kind_of(name).name, settings.meaning_of(name)
        yield f"| `{name}` | `{variable}` | {kind} | {default} | {meaning} |"


def _errors_page() -> Iterator[str]:
    yield from ("# Errors", "", MADE, "")
    yield "Every error the engine raises on purpose. Names in braces are facts, also found in `error.facts`."
    yield "*Retriable* says whether the same request may succeed later."
    yield from ("", "| error | kind of | retriable | says |", "|---|---|---|---|")
    for kind in error_classes():
        parent = "" if kind is MillpondError else f"`{kind.__bases__[0].__name__}`"
        says = " ".join((kind.__doc__ or "").split()).replace("|", "\\|")
        yield f"| `{kind.__name__}` | {parent} | {'yes' if kind.retriable else 'no'} | {says} |"


def _metrics_page() -> Iterator[str]:
    yield from ("# Metrics", "", MADE, "")
    yield "In Prometheus' text format. Counters are exposed with `_total` behind their name."
    yield from ("", "| metric | kind | labels | meaning |", "|---|---|---|---|")
    for metric in metrics():
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        yield f"| `{metric._name}` | {metric._type} | {labels} | {metric._documentation} |"


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
