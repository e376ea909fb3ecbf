"""What the benchmarks make of their figures."""

from math import isclose

from benchmarks.cluster.rounds import Round, pooled


def a_round(**chosen):
    usual = {
        "brokers": 2,
        "seconds": 10.0,
        "megabytes": 2000.0,
        "cpu_s": 9.0,
        "database_s": 1.0,
        "flushes": 400.0,
        "flushed_bytes": 2000e6,
        "puts": 400.0,
        "paced_seconds": 10.0,
        "paced_puts": 300.0,
        "rest_seconds": 10.0,
        "rest_puts": 0.0,
    }
    return Round(**{**usual, **chosen})


def test_the_columns_of_a_row_agree_however_different_its_rounds_are():
    """Taken by themselves, the middle of 40 and 160 flushes a second times that of 5,000 and 1,250 kB is 312 MB/s."""
    row = pooled([a_round(), a_round(flushes=1600.0, puts=1600.0)])
    assert row["mb_per_s"] == 200.0
    assert row["commits"] == 100.0
    assert isclose(row["commits"] * row["kb"] / 1000, row["mb_per_s"])
    assert isclose(row["cpu_s_per_gb"] * row["mb_per_s"] / 1000, row["cpu"] + row["database"])
    assert isclose(row["puts"] * 2, row["commits"])


def test_a_long_round_counts_for_more_than_a_short_one():
    row = pooled([a_round(), a_round(seconds=30.0, megabytes=3000.0, flushed_bytes=3000e6)])
    assert row["mb_per_s"] == 5000.0 / 40.0
    assert isclose(row["commits"] * row["kb"] / 1000, row["mb_per_s"])


def test_a_round_without_a_flush_divides_by_nothing():
    assert pooled([a_round(flushes=0.0, flushed_bytes=0.0)])["kb"] == 0.0
