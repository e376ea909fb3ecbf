"""The words of code and documents: the field's ordinary terms, and none of the literary ones they replaced."""

import re
from pathlib import Path

import pytest
from tests.tidy.test_documents import files

ROOT = Path(__file__).parents[2]
BANNED = re.compile(
    r"whoever|nobody|somebody|anybody|foresaw|\banew\b|\b(is|are) told\b|so many|gives back|of one's own|is spoken",
    re.IGNORECASE,
)
READ_BY_STRANGERS = ("src/", "docs/", "proto/", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
ON_THE_WIRE = {
    "src/millpond/queues/schedule.py": 'why = "nobody"',
    "proto/millpond/v1/queue.proto": "no_credit, nobody.",
    "docs/how-to/queue.md": "| `nobody` | no consumer is attached |",
}
"""`nobody` is a value that clients receive as the reason why a key waits: no consumer has it."""


def lines_of(path):
    name = path.relative_to(ROOT).as_posix()
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if ON_THE_WIRE.get(name, "\n") not in line:
            yield f"{name}:{number}", line


def test_no_banned_word_is_used():
    read = [path for path in files() if path.relative_to(ROOT).as_posix().startswith(READ_BY_STRANGERS)]
    texts = [path for path in read if path.suffix in (".py", ".md", ".proto", ".sql")]
    assert len(texts) > 500
    found = [
        f"{place}: {line.strip()}" for path in texts for place, line in lines_of(path) if BANNED.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line", ["Whoever asks", "a topic made anew", "the client is told", "So many of them", "is spoken here"]
)
def test_a_banned_word_is_found(line):
    assert BANNED.search(line)


@pytest.mark.parametrize("line", ["renew the lease", "a manual task", "some bodies are large"])
def test_an_ordinary_word_is_not(line):
    assert not BANNED.search(line)
