"""Compaction and merging: rows and bytes per second through the pipelines, including tasks and commit."""

from benchmarks.report import Report
from benchmarks.spark.environment import Workplace, fill, timed
from millpond.spark import Place
from millpond.spark.pipelines import compact, merge
from millpond.spark.pipelines.job import PipelineJob

ROWS = 4_000_000
SIZE = 100


def measure(report: Report, place: Workplace) -> None:
    report.section(
        "Maintenance",
        f"Rows of {SIZE} bytes under 200,000 keys in 4 partitions, `local[2]`.",
    )
    job = PipelineJob(Place.at(place.data), lambda: place.spark)
    count = place.rows(ROWS)
    fill(place.data, "warm", partitions=2, rows=100_000, value_bytes=SIZE, **{"cleanup.policy": "compact"})
    compact.run(job, compact.CompactRequest(topics=("warm",), force=True))
    fill(place.data, "compacted", partitions=4, rows=count, value_bytes=SIZE, **{"cleanup.policy": "compact"})
    seconds = timed(lambda: compact.run(job, compact.CompactRequest(topics=("compacted",), force=True)))
    rows = [("compact", f"{count:,} rows", f"{count / seconds / 1e6:.2f} M rows/s", f"{seconds:.1f} s")]
    left = place.topic("compacted").count()
    rows.append(("", f"{left:,} rows left", "", ""))
    fill(place.data, "merged", partitions=4, rows=count, value_bytes=SIZE)
    done = {}
    seconds = timed(lambda: done.update(merge.run(job, merge.MergeRequest(topics=("merged",)))))
    size = int(done.get("bytes", 0))
    rows.append(("merge", f"{size / 1e6:,.0f} MB", f"{size / seconds / 1e6:,.0f} MB/s", f"{seconds:.1f} s"))
    report.table(("pipeline", "work", "rate", "time"), rows)
