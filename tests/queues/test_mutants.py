"""Whether the histories of `test_model.py` find mistakes: each is made in a copy, where they must fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.queues.mutants import FOUND, HISTORIES_MAX, OWN, SEEDED

ROOT = Path(__file__).parents[2]
MUTANTS = (*SEEDED, *OWN)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources and these tests, in a place of their own."""
    place = tmp_path_factory.mktemp("mutants")
    for folder in ("src/millpond", "tests/queues"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return place


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_histories_find_a_mistake(mutant, copy, figures):
    original = (copy / mutant.path).read_text()
    mutant.apply(copy)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.queues.mutants", str(HISTORIES_MAX)],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": f"{copy / 'src'}:{copy}"},
            capture_output=True,
            text=True,
            timeout=900,
        )
    finally:
        (copy / mutant.path).write_text(original)
    found = done.returncode == FOUND
    assert found or done.returncode == 0, done.stderr
    word = "found" if found else "not found"
    figures.append(f"mutants of the dispatcher: {word}: {mutant.name}: {done.stdout.strip() or 'equivalent'}")
    assert found is not mutant.equivalent


def test_every_mistake_can_be_made(tmp_path):
    """The code it stands for is still there."""
    for mutant in MUTANTS:
        target = tmp_path / mutant.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / mutant.path, target)
        mutant.apply(tmp_path)
        compile(target.read_text(), mutant.path, "exec")
