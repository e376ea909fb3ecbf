"""Run by `test_kills.py` in a process of its own: one pipeline on a data directory, `killed.py <pipeline> <path>`."""

import sys

from millpond.spark import Place, session
from millpond.spark.pipelines import compact, merge, retain
from millpond.spark.pipelines.job import PipelineJob

PIPELINES = {
    "merge": (merge.run, merge.MergeRequest()),
    "compact": (compact.run, compact.CompactRequest(force=True)),
    "retain": (retain.run, retain.RetainRequest()),
}


def main(pipeline: str, path: str) -> None:
    config = {
        "spark.driver.memory": "512m",
        "spark.local.dir": f"{path}/spark",
        "spark.sql.warehouse.dir": f"{path}/warehouse",
    }
    run, request = PIPELINES[pipeline]
    run(
        PipelineJob(
            Place.at(path), lambda: session("killed", master="local[2]", fast_start=True, config=config)
        ),
        request,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
