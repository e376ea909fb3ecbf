"""The watch mode of `make watch`: the code that runs is the code that was saved last."""

import signal
import sys
from pathlib import Path

import pytest
from tests.seeds.processes import Talker, eventually

WATCH = Path(__file__).parents[2] / "deploy" / "watch.py"
ENDLESS = "import os, time\nprint({!r}, os.getpid(), flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(ENDLESS.format("one"))
    return path


@pytest.fixture
def watched(program):
    with Talker(sys.executable, str(WATCH), str(program.parent), sys.executable, str(program)) as talker:
        talker.hear("one")
        yield talker
        if talker.is_running:
            talker.signal(signal.SIGTERM)
            talker.wait()


def process_of(talker, word):
    return int(talker.hear(word).split()[1])


def has_ended(pid):
    return not Path(f"/proc/{pid}").exists()


def test_what_is_saved_runs_in_place_of_what_ran(program, watched):
    first = process_of(watched, "one")
    program.write_text(ENDLESS.format("two"))
    watched.hear("two")
    assert has_ended(first)


def test_a_program_that_broke_is_run_again_when_it_is_mended(program, watched):
    program.write_text("raise SystemExit('broken')\n")
    watched.hear("broken")
    program.write_text(ENDLESS.format("mended"))
    watched.hear("mended")


def test_a_new_file_counts_as_a_change(program, watched):
    first = process_of(watched, "one")
    (program.parent / "new.py").write_text("")
    eventually(lambda: has_ended(first), "the program was started again")


def test_told_to_end_while_it_starts_the_program_again_it_leaves_none_behind(program, watched):
    first = process_of(watched, "one")
    (program.parent / "new.py").write_text("")
    eventually(lambda: has_ended(first), "the program is started again")
    watched.signal(signal.SIGTERM)
    assert watched.wait() == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_what_it_runs(watched, number):
    first = process_of(watched, "one")
    watched.signal(number)
    assert watched.wait() == 128 + number
    assert has_ended(first)
