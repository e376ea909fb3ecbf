"""`millpond pipeline` where Spark or Java is missing: one sentence, whichever command it is."""

import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.unit.cli.conftest import LONGEST_S, environment

from millpond.cli.main import cli
from millpond.cli.packages import EXTRAS
from millpond.cli.pipeline import COMMAND_MODULES

NEEDED = {
    "table": ("orders", "./table"),
    "sql": ("SELECT 1",),
    "publish": ("orders", "--sql", "SELECT 1"),
    "replay": ("orders", "copy"),
    "run": ("--rounds", "1"),
}
"""The arguments of each command, where it has any that it cannot do without."""
ON_SPARK = sorted(set(COMMAND_MODULES) - {"history"})
HIDING = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

hidden = sys.argv.pop(1).split(",")
sys.meta_path.insert(0, Hidden())
from millpond.cli.main import main
sys.argv[0] = "millpond"
main()
"""
"""A command as on a machine without these packages."""


def hide(monkeypatch, *packages):
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def run(*arguments):
    return CliRunner().invoke(cli, ["pipeline", *arguments], prog_name="millpond")


def run_without(packages, *arguments):
    command = [sys.executable, "-c", HIDING, packages, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LONGEST_S, env=environment(), check=False
    )


@pytest.mark.parametrize("name", ON_SPARK)
def test_without_spark_a_command_says_what_to_install(name, monkeypatch, tmp_path):
    hide(monkeypatch, *EXTRAS["spark"])
    done = run(name, *NEEDED.get(name, ()), "--data-dir", str(tmp_path))
    assert done.exit_code == 1
    assert done.stderr.startswith(f"millpond: `millpond pipeline {name}` needs the Python packages pyspark, ")
    assert "pip install 'millpond[spark,tables]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ON_SPARK)
def test_without_java_a_command_says_what_to_install(name, monkeypatch, tmp_path):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = run(name, *NEEDED.get(name, ()), "--data-dir", str(tmp_path))
    assert done.exit_code == 1
    assert "needs Java 17 or 21 (not installed): install a Java runtime" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_all_that_is_missing_is_said_at_once(monkeypatch, tmp_path):
    hide(monkeypatch, "numba")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    done = run("verify", "--data-dir", str(tmp_path))
    assert "needs the Python package numba and Java 17 or 21 (not installed): pip install" in done.stderr


def test_the_history_needs_neither(monkeypatch, tmp_path, millpond_data):
    hide(monkeypatch, *EXTRAS["spark"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    done = run("history", "--data-dir", str(millpond_data))
    assert (done.exit_code, done.stdout) == (0, "No pipeline has run yet. Try: millpond pipeline verify\n")


@pytest.fixture
async def millpond_data(tmp_path):
    from millpond.testing import running_broker

    async with running_broker(tmp_path / "data"):
        pass
    return tmp_path / "data"


def test_help_needs_neither(monkeypatch):
    hide(monkeypatch, *EXTRAS["spark"])
    assert run("sql", "--help").exit_code == 0


def test_a_real_import_that_fails_is_a_sentence_too(tmp_path):
    done = run_without("pyspark,numba", "pipeline", "sql", "SELECT 1", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "the Python packages pyspark and numba" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_package_that_every_command_needs_is_named(tmp_path):
    done = run_without("apsw", "doctor", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("millpond: This command needs the Python package apsw (not installed): ")
    assert "Traceback" not in done.stderr
