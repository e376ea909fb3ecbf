"""Every file of tests/faults has a deterministic twin in `make test`; every mutant of the registry can be applied."""

import shutil
from pathlib import Path

import pytest
from tests.faults.twins import TOOLS, TWINS
from tests.queues.mutants import Mutant
from tests.simulation.bugs import BUGS

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests/faults"


def test_every_file_of_faults_has_a_twin():
    files = {str(path.relative_to(FAULTS)) for path in FAULTS.rglob("test_*.py")}
    assert sorted(files) == sorted({*(twin.faults for twin in TWINS), *TOOLS})


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.faults)
def test_a_twin_runs_in_make_test(twin):
    for name in twin.twin:
        assert (ROOT / name.partition("::")[0]).exists()
        assert not name.startswith(("tests/faults", "tests/peers"))


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.faults)
def test_its_mutant_can_be_applied(twin, tmp_path):
    if not isinstance(twin.mutant, Mutant):
        assert twin.mutant in BUGS
        return
    target = tmp_path / twin.mutant.path
    target.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / twin.mutant.path, target)
    twin.mutant.apply(tmp_path)
    compile(target.read_text(), twin.mutant.path, "exec")
