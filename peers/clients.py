"""The observed results of each client with Millpond. The tests store them in `.peers/clients.json`, and
`docs/reference/clients.md` shows them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from peers.home import ROOT, Unavailable, home

PAGE = ROOT / "docs" / "reference" / "clients.md"
GENERATED_NOTE = "<!-- made by `python -m peers table` from the last `make test-peers` -->"
TARGET = "millpond"
WORDS = {"passed": "yes", "failed": "no", "skipped": "not tried"}


@dataclass(frozen=True, slots=True, order=True)
class Outcome:
    """One capability of one client, tested on one broker. `outcome` is pytest's word; `reason` explains a
    failure or a skip; `counts` says how much was checked, on `date`."""

    client: str
    version: str
    capability: str
    outcome: str
    reason: str = ""
    counts: str = ""
    date: str = ""


def results_file() -> Path:
    return home() / "clients.json"


def read_results(target: str = TARGET) -> list[Outcome]:
    """In the order of the tests."""
    file = results_file()
    if not file.exists():
        raise Unavailable("No client was tried yet: run `make test-peers` first.")
    return [Outcome(**each) for each in json.loads(file.read_text()).get(target, [])]


def save_results(target: str, fresh: Iterable[Outcome]) -> None:
    """Add to the results of earlier runs. A new result of a capability replaces the old one."""
    file = results_file()
    everything = json.loads(file.read_text()) if file.exists() else {}
    merged = {_identity(each): each for each in (Outcome(**row) for row in everything.get(target, []))}
    merged.update({_identity(each): each for each in fresh})
    everything[target] = [asdict(each) for each in merged.values()]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(everything, indent=1) + "\n")


def write_page() -> Path:
    PAGE.write_text(page(read_results()))
    return PAGE


def page(results: Iterable[Outcome]) -> str:
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Iterable[Outcome]) -> Iterator[str]:
    yield from ("# Clients", "", GENERATED_NOTE, "")
    yield "What real clients were seen to do with a Millpond broker, each line by a test in `tests/peers`."
    ordered = sorted(results, key=lambda each: (each.client.lower(), each.version))
    for (client, version), group in groupby(ordered, lambda each: (each.client, each.version)):
        yield from ("", f"## {client} {version}".rstrip(), "")
        yield from _table(list(group))


def _table(rows: list[Outcome]) -> Iterator[str]:
    """The counts and the date have columns if a row has counts."""
    if not any(each.counts for each in rows):
        yield from ("| capability | works |", "|---|---|")
        for each in rows:
            yield f"| {each.capability} | {_verdict(each)} |"
        return
    yield from ("| capability | works | counts | date |", "|---|---|---|---|")
    for each in rows:
        yield f"| {each.capability} | {_verdict(each)} | {each.counts} | {each.date} |"


def _verdict(each: Outcome) -> str:
    word = WORDS[each.outcome]
    return f"{word}: {each.reason}".replace("|", "\\|") if each.reason else word


def _identity(each: Outcome) -> tuple[str, str, str]:
    return each.client, each.version, each.capability
