"""The deterministic twin of each file in tests/faults: tests of `make test` that cover the same behaviour, and a mutant
of the code that they find.

    python -m tests.faults.twins              # applies every mutant to a copy, runs its twin there, prints a table
    python -m tests.faults.twins processes    # only the files whose path contains this

A mutant that is a name is one of `tests/simulation/bugs.py`, which `make test` itself applies.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.queues.mutants import Mutant

ROOT = Path(__file__).parents[2]
SRC = "src/millpond"
SIMULATION = "tests/simulation/test_simulation.py"
COPIED = ("src", "tests", "examples", "proto", "docs", "pyproject.toml")
SECONDS_MAX = 900


@dataclass(frozen=True, slots=True)
class Twin:
    faults: str
    """The file below tests/faults."""
    twin: tuple[str, ...]
    """Tests of `make test`, as pytest names them."""
    mutant: Mutant | str


def mutant(name: str, path: str, code: str, instead: str) -> Mutant:
    return Mutant(name, f"{SRC}/{path}", code, instead)


OUT_OF_ORDER = mutant(
    "a flush is committed before an earlier one of its partition",
    "log/flights.py",
    "held_up.update(flight.partitions)",
    "held_up.clear()",
)
NO_EPOCH = mutant(
    "a commit does not compare the epoch", "catalog/appends.py", "(epoch = ? OR ? < 0)", "(? >= ?)"
)
REPEATS = mutant(
    "a batch that comes again is appended again",
    "model/producers.py",
    "            return known\n    expected",
    "            return None\n    expected",
)
UNBOUNDED = mutant(
    "requests over gRPC are not bounded",
    "frontends/rpc/memory.py",
    "self.held_bytes + size > self._bytes_max",
    "self.held_bytes + size > 1 << 60",
)

ALL_AT_ONCE = mutant(
    "a consumer is sent more than it has granted",
    "queues/dispatcher_state.py",
    "consumer_credit.messages > 0 and consumer_credit.bytes",
    "consumer_credit.messages > -100 and consumer_credit.bytes",
)
NO_FRAMES_LIMIT = mutant(
    "requests over Kafka's protocol are not bounded",
    "frontends/kafka/server.py",
    "        self.make_room()\n        self._waiting[connection] = None\n        return True",
    "        return False",
)

TWINS = (
    Twin(
        "catalog/test_four_writers.py",
        ("tests/unit/catalog/test_writers_queue.py",),
        mutant(
            "writers do not queue on the lock file",
            "catalog/sqlite.py",
            "        fcntl.flock(self._lock_file, fcntl.LOCK_EX)\n        self.longest",
            "        self.longest",
        ),
    ),
    Twin(
        "client/test_producing.py",
        ("tests/unit/client/test_lane.py", "tests/unit/client/test_lane_properties.py"),
        mutant(
            "a lost answer counts as a refusal",
            "client/lane.py",
            "batch.is_uncertain |= isinstance(error, UNCERTAIN)",
            "pass",
        ),
    ),
    Twin(
        "client/test_consuming.py",
        ("tests/unit/client/test_consumer.py",),
        mutant(
            "a position does not advance with what was read",
            "client/topic_reader.py",
            "message.number + 1",
            "message.number",
        ),
    ),
    Twin(
        "client/test_subscribing.py",
        ("tests/unit/client/test_inbox.py",),
        mutant(
            "a revoked delivery can still be taken",
            "client/inbox.py",
            "self._drop(self._live[each] for each in ack_ids if each in self._live)",
            "pass",
        ),
    ),
    Twin(
        "clients/test_members.py",
        ("tests/transcripts/test_groups.py",),
        mutant(
            "the session of a silent member does not end",
            "groups/classic/group.py",
            "            self._end_session(member_id, now_ms)\n        if state.sync_due_ms",
            "            pass\n        if state.sync_due_ms",
        ),
    ),
    Twin(
        "clients/test_sasl_sessions.py",
        ("tests/unit/frontends/kafka/test_sasl.py",),
        mutant(
            "a session cannot be renewed",
            "frontends/kafka/authentication.py",
            "return self._ends_at_ms is not None and elapsed_ms",
            "return self._ends_at_ms is None and elapsed_ms",
        ),
    ),
    Twin("clients/test_restarts.py", ("tests/unit/log/test_producers.py",), REPEATS),
    Twin(
        "cluster/test_catalog_went_back.py",
        ("tests/cluster/test_catalog_went_back.py",),
        mutant(
            "a catalog that went back is not noticed",
            "log/commit_results.py",
            "if partition is not None and appended.base_offset < known_end:",
            "if False:",
        ),
    ),
    Twin("cluster/test_clocks.py", (SIMULATION,), "no_epoch_compare"),
    Twin(
        "cluster/test_inline.py",
        ("tests/unit/log/test_budget.py",),
        mutant("the budget is never used up", "log/budget.py", "self._left -= size", "pass"),
    ),
    Twin(
        "cluster/test_postgres.py",
        ("tests/contract/catalog/test_lost_commits.py",),
        mutant(
            "a commit whose answer was lost is done again",
            "catalog/commits.py",
            "if taken.token == token and taken.result is not None:",
            "if False:",
        ),
    ),
    Twin("cluster/test_store.py", ("tests/cluster/test_slow_store.py",), OUT_OF_ORDER),
    Twin("cluster/test_zombies.py", ("tests/cluster/test_zombies.py",), NO_EPOCH),
    Twin(
        "deploy/test_topology.py",
        ("tests/cluster/test_routing.py",),
        mutant(
            "HTTP does not send clients to the owner", "frontends/web/app.py", "status = 307", "status = 503"
        ),
    ),
    Twin(
        "deploy/test_spark_job.py",
        ("tests/spark/pipelines/test_merge.py",),
        mutant(
            "a merge replaces extents that have changed",
            "catalog/extents.py",
            "if len(removed) != len(living):",
            "if False:",
        ),
    ),
    Twin("memory/test_crowds.py", ("tests/hostile/kafka/test_unread.py",), NO_FRAMES_LIMIT),
    Twin(
        "memory/test_idle_rpc.py",
        ("tests/hostile/rpc/test_bad_connections.py", "tests/unit/frontends/rpc/test_memory.py"),
        UNBOUNDED,
    ),
    Twin("memory/test_unread_rpc.py", ("tests/unit/frontends/rpc/test_memory.py",), UNBOUNDED),
    Twin("memory/test_unread_subscriptions.py", ("tests/queues/test_engine.py",), ALL_AT_ONCE),
    Twin("processes/test_chaos.py", (SIMULATION,), "ack_before_commit"),
    Twin(
        "processes/test_group_chaos.py",
        ("tests/transcripts/test_groups.py",),
        mutant(
            "the session of a silent member does not end",
            "groups/classic/group.py",
            "            self._end_session(member_id, now_ms)\n        if state.sync_due_ms",
            "            pass\n        if state.sync_due_ms",
        ),
    ),
    Twin(
        "processes/test_group_coordinator.py",
        ("tests/unit/groups/test_consumer_coordinator.py",),
        mutant(
            "a coordinator that takes over does not know what members own",
            "groups/consumer/stored.py",
            'assigned=_decode_since(kept.get("assigned", {})),',
            "assigned={},",
        ),
    ),
    Twin("processes/test_partitions.py", (SIMULATION,), "ack_before_commit"),
    Twin("processes/test_rolling.py", (SIMULATION,), "commit_out_of_order"),
    Twin(
        "processes/test_rotation.py",
        ("tests/unit/frontends/kafka/test_sasl.py", "tests/clients/test_own_logins.py"),
        mutant(
            "an idle connection keeps a revoked credential until the next sweep",
            "frontends/kafka/server.py",
            "if self._connections and self.authentication.view.version != self._swept_version:",
            "if False:",
        ),
    ),
    Twin(
        "processes/test_share_chaos.py",
        ("tests/cluster/test_share_groups.py",),
        mutant(
            "a broker that takes over does not know how often messages were delivered",
            "queues/partition_queue.py",
            "retries={offset: Retry(*retry) for offset, retry in loaded.retries.items()},",
            "retries={},",
        ),
    ),
    Twin("processes/test_zombie.py", (SIMULATION,), "no_epoch_compare"),
    Twin(
        "processes/test_workers.py",
        ("tests/unit/cli/test_workers.py",),
        mutant(
            "a worker that died is not started again",
            "cli/workers.py",
            "            await self._pause(pause_s)\n",
            "            return\n",
        ),
    ),
    Twin("queues/test_chaos.py", ("tests/queues/test_model.py", SIMULATION), "key_not_blocked"),
    Twin("seeds/test_cluster.py", ("tests/cluster/test_routing.py", SIMULATION), "no_epoch_compare"),
    Twin(
        "spark/pipelines/test_beside_a_broker.py",
        ("tests/spark/pipelines/test_concurrency.py",),
        mutant(
            "a merge replaces extents that have changed",
            "catalog/extents.py",
            "if len(removed) != len(living):",
            "if False:",
        ),
    ),
    Twin(
        "spark/pipelines/test_kills.py",
        ("tests/spark/pipelines/test_job.py",),
        mutant(
            "a run that failed stays in the catalog as running",
            "spark/pipelines/job.py",
            "            catalog_runs.end(tx, run_id, state, report, now_ms=job.clock.now_ms())\n",
            "",
        ),
    ),
    Twin(
        "spark/sink/test_kills.py",
        ("tests/spark/sink/test_commits.py",),
        mutant(
            "a batch that comes again is committed again",
            "catalog/sinks.py",
            "WHERE sink_commits.batch < excluded.batch",
            "WHERE sink_commits.batch <= excluded.batch",
        ),
    ),
    Twin(
        "spark/tables/test_kills.py",
        ("tests/spark/tables/test_steps.py",),
        mutant(
            "a step is not left behind",
            "spark/tables/steps.py",
            "moved = {(each.topic, each.partition): each.end for each in step}",
            "moved = {(each.topic, each.partition): each.start for each in step}",
        ),
    ),
    Twin(
        "spark/test_clusters.py",
        ("tests/spark/source/test_planning.py",),
        mutant(
            "a split begins where the one before it began",
            "spark/source/planning.py",
            "            start, size = range_part.end, 0",
            "            size = 0",
        ),
    ),
    Twin(
        "spark/test_declarative.py",
        ("tests/spark/examples/test_examples.py",),
        Mutant(
            "the declarative example reads another topic",
            "examples/declarative/transformations/orders.py",
            '"subscribe", "orders"',
            '"subscribe", "large-orders"',
        ),
    ),
    Twin(
        "security/test_slow_handshakes.py",
        (
            "tests/unit/security/test_listener.py::test_handshakes_of_one_address_are_limited",
            "tests/unit/security/test_listener.py::test_silent_clients_do_not_keep_others_out",
        ),
        mutant(
            "the handshakes of one address are not limited",
            "security/listener.py",
            "len(of_network) >= self._limits.per_address_max or",
            "len(of_network) < 0 or",
        ),
    ),
    Twin(
        "security/test_timing.py",
        ("tests/unit/security/test_scram.py", "tests/unit/security/test_plain.py"),
        mutant(
            "nothing is read in place of the credential of an unknown user",
            "security/scram.py",
            "self._look_up(other if self._stored is None else absent)",
            "self._look_up(absent)",
        ),
    ),
    Twin(
        "test_disk_full.py",
        ("tests/unit/test_full_disk.py", "tests/hostile/catalog/test_sqlite.py"),
        mutant(
            "a full disk is an error like any other",
            "catalog/sqlite.py",
            "case apsw.FullError():",
            "case None:",
        ),
    ),
    Twin(
        "test_failed_fsync.py",
        ("tests/unit/objects/test_failed_sync.py",),
        mutant(
            "a failed fsync is acknowledged",
            "objects/file_store.py",
            "            self._close_journal()\n            raise\n\n    def _close",
            "            self._close_journal()\n\n    def _close",
        ),
    ),
    Twin(
        "test_kill.py",
        ("tests/simulation/test_power_loss.py",),
        mutant(
            "a journal is not synced",
            "objects/file_store.py",
            "            os.fdatasync(journal.descriptor)",
            "            pass",
        ),
    ),
    Twin(
        "test_kill_at_every_syscall.py",
        ("tests/simulation/test_power_loss.py",),
        mutant(
            "the name of a new journal is not made durable",
            "objects/files.py",
            "        os.fsync(descriptor)",
            "        pass",
        ),
    ),
    Twin("test_object_store.py", ("tests/unit/log/test_uploads.py",), OUT_OF_ORDER),
)
TOOLS = (
    "processes/test_checker.py",
    "processes/test_group_judge.py",
    "processes/test_proxy.py",
    "processes/test_share_judge.py",
)
"""Tests of what the tests here use."""


def failed(tests: Iterable[str], change: Mutant | None = None) -> bool:
    """Whether these tests fail in a copy of the repository, with the mutant in it if one is given."""
    with tempfile.TemporaryDirectory(prefix="millpond-twin-") as name:
        copy = Path(name)
        for each in COPIED:
            source, target = ROOT / each, copy / each
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(source, target)
        if change is not None:
            change.apply(copy)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": f"{copy / 'src'}:{copy}"},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.returncode == 1


def main(chosen: str = "") -> int:
    twins = [twin for twin in TWINS if chosen in twin.faults]
    mutated = sorted({test for twin in twins if isinstance(twin.mutant, Mutant) for test in twin.twin})
    if mutated and failed(mutated):
        print("a twin fails without any mutant", file=sys.stderr)
        return 1
    missed = 0
    for twin in twins:
        if isinstance(twin.mutant, str):
            verdict, name = "by make test", f"simulation: {twin.mutant}"
        else:
            verdict, name = ("found" if failed(twin.twin, twin.mutant) else "NOT FOUND"), twin.mutant.name
        missed += verdict == "NOT FOUND"
        print(f"{verdict:12} {twin.faults}: {name} ({', '.join(twin.twin)})", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
