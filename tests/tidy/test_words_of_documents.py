"""The documents use the field's ordinary words: those of `docs/glossary.md`, and none of a short list."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = {
    *("docs/reference/settings.md", "docs/reference/errors.md", "docs/reference/metrics.md"),
    *("docs/reference/kafka.md", "docs/reference/clients.md", "docs/explanation/performance.md"),
}
"""Their words come from the code, the tests of peers and the benchmarks."""
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE")),
    )
    if str(path.relative_to(ROOT)) not in GENERATED
)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
BANNED = re.compile(
    r"\b(?:whoever|whomever|nobody|somebody|anybody|everybody|foresaw|anew|(?:is|are|was) told|so many|so long ago"
    r"|g[ai]ves? back|of one's own|(?:is|are) spoken|spoken here|faces?)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("name", [*PAGES, "CONTRIBUTING.md"])
def test_a_page_says_it_plainly(name):
    words = CODE.sub("", (ROOT / name).read_text())
    assert BANNED.findall(words) == []


@pytest.mark.parametrize(
    ("text", "banned"),
    [
        *[("Nobody foresaw it", 2), ("the HTTP face", 1), ("a broker is told to stop", 1), ("made anew", 1)],
        *[
            ("an interface", 0),
            ("`nobody` is a state", 0),
            ("[x](results/faces.md)", 0),
            ("```\nwhoever\n```", 0),
        ],
    ],
)
def test_the_list_knows_words_from_code(text, banned):
    assert len(BANNED.findall(CODE.sub("", text))) == banned
