"""Code and documents use the field's ordinary words: those of `docs/glossary.md`, and none of a short list."""

import re
from pathlib import Path

import pytest
from tests.tidy.test_documents import files

ROOT = Path(__file__).parents[2]
READ_BY_STRANGERS = (
    *("src/", "docs/", "proto/", "benchmarks/", "examples/", "peers/"),
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "compose.yaml"),
)
QUOTED = re.compile(r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
"""Code and addresses in a document, whose words are names."""
BANNED = re.compile(
    r"\b(?:whoever|whomever|nobody|somebody|anybody|foresaw|anew|(?:is|are|was) told|so many|so long ago"
    r"|g[ai]ves? back|of one's own|(?:is|are) spoken|spoken here|faces?)\b",
    re.IGNORECASE,
)
ON_THE_WIRE = {
    "src/millpond/queues/schedule.py": 'why = "nobody"',
    "proto/millpond/v1/queue.proto": "no_credit, nobody.",
}
"""`nobody` is a value that clients receive as the reason why a key waits: no consumer has it."""


def texts():
    named = [(path.relative_to(ROOT).as_posix(), path) for path in files()]
    return [
        (name, path.read_text())
        for name, path in named
        if name.startswith(READ_BY_STRANGERS) and path.suffix in (".py", ".md", ".proto", ".yaml")
    ]


def banned_in(name, text):
    if name.endswith(".md"):
        return BANNED.findall(QUOTED.sub("", text))
    return BANNED.findall(text.replace(ON_THE_WIRE.get(name, "\0"), ""))


def test_no_text_uses_a_banned_word():
    read = texts()
    assert len(read) > 500
    assert [(name, found) for name, text in read if (found := banned_in(name, text))] == []


@pytest.mark.parametrize(
    ("text", "banned"),
    [
        *[("Nobody foresaw it", 2), ("the HTTP face", 1), ("a broker is told to stop", 1), ("made anew", 1)],
        *[("an interface", 0), ("renew the lease", 0), ("`nobody` is a state", 0)],
        *[("[x](results/faces.md)", 0), ("```\nwhoever\n```", 0)],
    ],
)
def test_banned_words_are_found_outside_of_code(text, banned):
    assert len(banned_in("page.md", text)) == banned


def test_the_value_on_the_wire_is_still_there():
    for name, text in ON_THE_WIRE.items():
        assert text in (ROOT / name).read_text()
