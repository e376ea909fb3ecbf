"""S25: every row of the specification is tested by name, where `docs/seeds.md` says it is."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = Path(__file__).parent
ROWS = [f"S{number}" for number in range(1, 37)]
KEPT = 9
"""Lines of behaviour to keep, of which two tests may share one."""
BUGS = (
    *("m1", "m2", "m3", "m4", "m5", "m7", "m8", "l1", "l2", "l4", "l5", "l6"),
    *("p1", "p2", "p3", "p5", "p7"),
)
NAMED = re.compile(r"^(?:async )?def test_((?:[a-z]+\d*_)+)", re.MULTILINE)


def words_in(path):
    """The words that the tests of a file begin with: s7, m2, kept."""
    found = NAMED.findall(path.read_text())
    return {word for name in found for word in name.split("_")[:2]}


def documented():
    page = (ROOT / "docs/seeds.md").read_text()
    return dict(re.findall(r"^\| (S\d+) \|.*`(tests/[\w/.]+)` \|$", page, re.MULTILINE))


@pytest.mark.parametrize("row", ROWS)
def test_s25_every_row_has_a_test_that_is_named_for_it(row):
    assert row.lower() in words_in(ROOT / documented()[row])


def test_s25_the_page_lists_exactly_the_rows():
    assert list(documented()) == ROWS


@pytest.mark.parametrize("bug", BUGS)
def test_s25_every_bug_of_the_seeds_has_a_test_that_is_named_for_it(bug):
    assert any(bug in words_in(path) for path in SEEDS.glob("test_*.py"))


def test_s25_every_line_of_the_behaviour_to_keep_has_one():
    service = (SEEDS / "test_minikafka_service.py").read_text()
    assert len(re.findall(r"^def test_kept_", service, re.MULTILINE)) >= KEPT
