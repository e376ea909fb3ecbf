"""What `tests.repeat` reads from the output of a run."""

from tests.repeat import parse

PASSED = "....\n====== 12 passed, 1 skipped in 3.21s ======\n"
FAILED = """\
FAILED tests/unit/log/test_log.py::test_one[a b] - AssertionError: x
ERROR tests/unit/log/test_log.py::test_two
====== 1 failed, 10 passed, 1 error in 3.21s ======
make: *** [Makefile:40: test] Error 1
"""


def test_a_run_that_passed_has_no_failures():
    run = parse(PASSED, seconds=63.4, exit_code=0)
    assert run.failed == ()
    assert str(run) == "1:03 min  passed  12 passed, 1 skipped in 3.21s"


def test_failed_tests_and_errors_are_named():
    run = parse(FAILED, seconds=5, exit_code=2)
    assert run.failed == ("tests/unit/log/test_log.py::test_one[a", "tests/unit/log/test_log.py::test_two")
    assert str(run) == "0:05 min  FAILED (exit code 2)  1 failed, 10 passed, 1 error in 3.21s"


def test_a_run_that_ended_before_its_summary_says_so():
    assert str(parse("killed", seconds=0, exit_code=137)) == "0:00 min  FAILED (exit code 137)  no summary"
