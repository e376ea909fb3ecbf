"""Timestamps, retention by age and offsets by time on Apache Kafka and on Millpond. The cases are in `times/`."""

import pytest
from tests.peers.support import available
from tests.peers.times import comparison, run
from tests.peers.times.cases import CASES, RAW_CASES, Absolute, Case
from tests.peers.times.comparison import Comparison, Verdict, judged, wrong_entries
from tests.peers.times.known import KNOWN_DIFFERENCES, KnownDifference

from millpond.log.admission import TRUSTED_AGE_MS
from millpond.records import Codec


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return available(lambda: comparison.compare(run.observe(tmp_path_factory.mktemp("times"))))


@pytest.mark.peers
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_both_brokers_do_the_same_or_the_difference_is_listed(compared: Comparison, name: str) -> None:
    rows = [row for row in compared.rows if row.case.name == name]
    assert rows
    assert [each for row in rows for each in row.problems] == []


@pytest.mark.peers
def test_headers_that_are_understated_by_more_than_the_trusted_span_make_no_difference(
    compared: Comparison,
) -> None:
    rows = [row for row in compared.rows if row.case.is_understated()]
    assert {row.codec for row in rows} == set(Codec)
    assert {row.verdict for row in rows} == {Verdict.EQUAL}


@pytest.mark.peers
def test_nothing_expires_earlier_than_by_the_trusted_span(compared: Comparison) -> None:
    early = [row.expired_early_ms for row in compared.rows]
    assert 0 < max(early) <= TRUSTED_AGE_MS


# -- how differences are judged -------------------------------------------------------------------------------------

CASE = Case("mixed", (0,))
KNOWN = (KnownDifference(("mixed",), {"kept: start": ("5", "2")}, "Because."),)


def judge(kafka: str, ours: str, *, early_ms: int = 0, known: tuple[KnownDifference, ...] = ()):
    return judged(CASE, Codec.NONE, {"kept: start": kafka}, {"kept: start": ours}, early_ms, known)


@pytest.mark.peers
def test_equal_results_are_equal():
    assert judge("2", "2").verdict is Verdict.EQUAL


@pytest.mark.peers
def test_a_difference_must_be_listed_with_both_values():
    assert judge("5", "2", known=KNOWN).verdict is Verdict.KNOWN
    assert judge("5", "2").problems == ("kept: start: Kafka '5', Millpond '2'",)
    assert judge("5", "0", known=KNOWN).verdict is Verdict.UNEXPECTED


@pytest.mark.peers
def test_a_listed_difference_must_occur():
    [problem] = judge("2", "2", known=KNOWN).problems
    assert problem.endswith("does not occur")


@pytest.mark.peers
def test_expiry_earlier_than_by_the_trusted_span_is_a_problem():
    assert judge("5", "5", early_ms=TRUSTED_AGE_MS).problems == ()
    assert judge("5", "5", early_ms=TRUSTED_AGE_MS + 1).problems == (
        f"expired {TRUSTED_AGE_MS + 1} ms before the end of its retention",
    )


@pytest.mark.peers
def test_no_difference_may_be_listed_for_a_case_that_must_be_equal():
    assert list(wrong_entries(KNOWN_DIFFERENCES, CASES)) == []
    understated = [case for case in RAW_CASES if case.is_understated()]
    assert Absolute(0) in [case.newest for case in understated]
    entry = KnownDifference((understated[0].name, "no such case"), {}, "Because.")
    assert len(list(wrong_entries([entry], CASES))) == 2
