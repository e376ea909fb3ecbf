"""Whether the histories of `test_model.py` find mistakes: each is made in a copy, where they must fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.queues.mutants import FOUND, HISTORIES_MAX, IN_THE_CATALOG, OF_SHARE_GROUPS, OWN, SEEDED

ROOT = Path(__file__).parents[2]
MUTANTS = (*SEEDED, *OWN, *OF_SHARE_GROUPS)
CONTRACT = "tests/contract/catalog/test_subscriptions.py"


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


@pytest.mark.long
@pytest.mark.parametrize("mutant", IN_THE_CATALOG, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_contract_finds_a_mistake_in_the_catalog(mutant, tmp_path, figures):
    for folder in ("src/millpond", "tests/contract/catalog"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    mutant.apply(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", CONTRACT, "-k", "memory"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'src'}:{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = bool(done.returncode)
    figures.append(f"mutants of the catalog: {'found' if found else 'not found'}: {mutant.name}")
    assert found is not mutant.equivalent


def test_every_mistake_can_be_made(tmp_path):
    """The code it stands for is still there."""
    for mutant in (*MUTANTS, *IN_THE_CATALOG):
        target = tmp_path / mutant.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / mutant.path, target)
        mutant.apply(tmp_path)
        compile(target.read_text(), mutant.path, "exec")
