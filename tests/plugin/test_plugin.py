"""The pytest plugin, in pytest runs of their own: its fixtures, its marker, its manners, and what its how-to shows."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HOW_TO = Path(__file__).parents[2] / "docs/how-to/testing.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
STRICT = ("--strict-markers", "--strict-config", "-W", "error")
WITHOUT = ("-p", "no:schemathesis", "-p", "no:hypothesispytest")
"""Large plugins of this project's own tests, slow to import."""
SECONDS_MAX = 180
WRITES_ONE = """
    def test_it(millpond):
        assert millpond.producer("orders").send(b"one").number == 1
"""


def run(pytester, *arguments):
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    return pytester.runpytest_subprocess(*STRICT, *WITHOUT, *arguments, timeout=SECONDS_MAX)


def test_the_how_to_runs_as_it_stands(pytester):
    """Each example as a file of its own; the one without pytest runs as it is imported."""
    for number, example in enumerate(EXAMPLES):
        pytester.makepyfile(**{f"test_example_{number}": example})
    tests = sum(len(re.findall(r"^(?:async )?def test", example, re.MULTILINE)) for example in EXAMPLES)
    assert tests >= len(EXAMPLES)
    run(pytester).assert_outcomes(passed=tests)


def test_the_first_example_is_ten_lines():
    assert len([line for line in EXAMPLES[0].splitlines() if line]) <= 10


def test_a_run_that_needs_no_broker_imports_none(pytester):
    pytester.makepyfile(
        """
        import sys

        def test_what_is_imported():
            ours = {name for name in sys.modules if name.partition(".")[0] == "millpond"}
            assert ours == {"millpond", "millpond.version", "millpond.testing", "millpond.testing.plugin"}
            assert not {"grpc", "google.protobuf", "uvloop", "apsw", "starlette"} & set(sys.modules)
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_each_test_has_a_broker_of_its_own_and_the_session_one_for_all(pytester):
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("turn", [1, 2])
        def test_fresh(millpond, turn):
            assert millpond.producer("orders").send(b"one").number == 1

        @pytest.mark.parametrize("turn", [1, 2])
        def test_shared(millpond_session, millpond, turn):
            assert millpond_session.producer("orders").send(b"one").number == turn
            assert millpond_session.grpc != millpond.grpc
        """
    )
    run(pytester).assert_outcomes(passed=4)


def test_the_nearest_marker_goes_before_others_and_before_the_fixture(pytester):
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture
        def millpond_settings():
            return {"default_partitions": 2, "retention": "2h", "node_id": 2, "max_message_bytes": "2MiB"}
        """
    )
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.millpond(default_partitions=3, retention="3h", node_id=3)

        @pytest.mark.millpond(default_partitions=4, retention="4h")
        class TestIt:
            @pytest.mark.millpond(default_partitions=5)
            def test_it(self, millpond):
                settings = millpond.broker.settings
                assert settings.default_partitions == 5
                assert settings.retention == 4 * 3_600_000
                assert settings.node_id == 3
                assert settings.max_message_bytes == 2 * 1024 * 1024
        """
    )
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("marker", "complaint"),
    [("'10s'", "*takes settings by name*"), ("retntion='10s'", "*retntion*there is no such setting*")],
)
def test_a_wrong_marker_is_explained(pytester, marker, complaint):
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.millpond({marker})
        def test_it(millpond):
            pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([complaint])


def test_it_can_be_turned_off(pytester):
    pytester.makepyfile("def test_other(): pass\n\n\ndef test_it(millpond): pass\n")
    result = run(pytester, "-p", "no:millpond")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*fixture 'millpond' not found*"])


def test_it_needs_no_other_plugin(pytester):
    pytester.makepyfile(WRITES_ONE)
    arguments = [word for name in ("asyncio", "anyio", "cacheprovider") for word in ("-p", f"no:{name}")]
    pytester.makeini("[pytest]\n")
    pytester.runpytest_subprocess(*STRICT, *WITHOUT, *arguments, timeout=SECONDS_MAX).assert_outcomes(
        passed=1
    )


def test_it_runs_in_several_processes(pytester):
    pytest.importorskip("xdist")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("turn", range(6))
        def test_it(millpond, millpond_session, turn):
            assert millpond.producer("orders").send(b"one").number == 1
            assert millpond_session.producer("orders").send(b"one").number >= 1
        """
    )
    run(pytester, "-n", "2").assert_outcomes(passed=6)


def test_a_failing_test_leaves_a_clean_run(pytester):
    """Without a word from threads, sockets or files that were left open."""
    pytester.makepyfile(
        """
        import threading

        def test_fails(millpond):
            millpond.producer("orders").send(b"one")
            millpond.kill()
            assert False

        def test_after_it(millpond):
            assert millpond.producer("orders").send(b"one").number == 1
            assert not [each.name for each in threading.enumerate() if "millpond" in each.name and not each.daemon]
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.no_fnmatch_line("*Warning*")
    assert result.stderr.str() == ""


def test_it_says_what_it_adds(pytester):
    markers = run(pytester, "--markers").stdout
    markers.fnmatch_lines(["@pytest.mark.millpond(*settings*"])
    fixtures = [
        line.split()[0] for line in run(pytester, "--fixtures").outlines if re.match(r"millpond\w*\b", line)
    ]
    assert sorted(fixtures) == ["millpond", "millpond_session", "millpond_settings"]
