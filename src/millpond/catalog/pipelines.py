"""The history of pipeline runs: what ran, over which topics, with what result."""

import json
from dataclasses import dataclass
from typing import Any, Final

from millpond.catalog.database import CatalogTransaction, Row
from millpond.model.ids import Session

RUNS_KEPT: Final = 1_000

BEGIN: Final = """
    INSERT INTO pipeline_runs (id, pipeline, topics, session, state, started_at, report)
    VALUES (?, ?, ?, ?, 'running', ?, '{}')
"""
END: Final = "UPDATE pipeline_runs SET state = ?, ended_at = ?, report = ? WHERE id = ?"
TRIM: Final = """
    DELETE FROM pipeline_runs WHERE started_at <
      (SELECT min(started_at) FROM (SELECT started_at FROM pipeline_runs ORDER BY started_at DESC LIMIT ?) AS newest)
"""
COLUMNS: Final = """
    SELECT r.id, r.pipeline, r.topics,
      CASE WHEN r.state = 'running' AND NOT EXISTS
        (SELECT 1 FROM writers w WHERE w.session = r.session AND w.dead_since IS NULL
           AND w.clock = ? AND w.expires_at >= ?)
      THEN 'interrupted' ELSE r.state END,
      r.started_at, r.ended_at, r.report FROM pipeline_runs r
"""
NEWEST: Final = f"{COLUMNS} ORDER BY r.started_at DESC, r.id LIMIT ?"


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """`state` is running, done, failed, or interrupted: its job died without reporting, and its lease has
    expired or its session has been marked dead."""

    id: str
    pipeline: str
    topics: list[str]
    state: str
    started_at: int
    ended_at: int | None
    report: dict[str, Any]


def begin(
    tx: CatalogTransaction, run_id: str, pipeline: str, topics: list[str], session: Session, *, now_ms: int
) -> None:
    tx.rows(BEGIN, (run_id, pipeline, json.dumps(topics), session, now_ms))
    tx.rows(TRIM, (RUNS_KEPT,))


def end(tx: CatalogTransaction, run_id: str, state: str, report: dict[str, Any], *, now_ms: int) -> None:
    tx.rows(END, (state, now_ms, json.dumps(report), run_id))


def newest(tx: CatalogTransaction, limit: int) -> list[PipelineRun]:
    return [_run(row) for row in tx.rows(NEWEST, (*tx.lease_clock(), limit))]


def _run(row: Row) -> PipelineRun:
    run_id, pipeline, topics, state, started_at, ended_at, report = row
    return PipelineRun(run_id, pipeline, json.loads(topics), state, started_at, ended_at, json.loads(report))
