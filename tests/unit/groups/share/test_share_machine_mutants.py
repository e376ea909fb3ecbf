"""The mistakes of `machine_mutants` can still be made."""

import shutil

from tests.unit.groups.consumer.machine_mutants import ROOT
from tests.unit.groups.share.machine_mutants import MUTANTS


def test_every_mistake_in_share_groups_can_be_made(tmp_path):
    """The code that each of them replaces is still there."""
    for mutant in MUTANTS:
        target = tmp_path / mutant.path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / mutant.path, target)
        mutant.apply(tmp_path)
        compile(target.read_text(), mutant.path, "exec")


def test_there_are_enough_mistakes_in_share_groups_and_none_is_there_twice():
    assert len(MUTANTS) >= 40
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({(mutant.path, mutant.code, mutant.instead) for mutant in MUTANTS}) == len(MUTANTS)
