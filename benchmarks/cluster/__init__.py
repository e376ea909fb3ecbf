"""Part `cluster`: what a second and a third broker add on one machine, where the limit is, and how many
requests S3 receives.

Everything is compared within one run: 1, 2 and 3 brokers in turn on the same catalog and store, loaded by
producers in separate processes. On a machine with few cores, the producers, the database and the brokers
share them, so CPU time per gigabyte says more than the rate.
"""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.cluster import catalog, latency
from benchmarks.cluster.rounds import Round, pooled
from benchmarks.cluster.servers import Broker, Place, brokers, cpu_of, on_one_machine, on_servers
from benchmarks.engine.setup import folder
from benchmarks.report import Report

COUNTS = (1, 2, 3)
PARTITIONS = 12
MESSAGE_BYTES = 1_000
SECONDS, QUICK_SECONDS = 10.0, 3.0
ROUNDS = 2
REST_S, QUICK_REST_S = 10.0, 5.0
PRODUCERS = 2
PACED_PER_S = 2_000
"""Messages per second that do not fill a flush to its size, so that the flush delay determines the number of
PUTs."""
SETTLED_S, SETTLED_S_MAX = 5, 60


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/cluster.md, unless `only` or `quick` is set."""
    report = Report("Many brokers", "make bench PART=cluster" + (" (quick)" if quick else ""))
    if only in (None, "throughput"):
        _throughput(report, quick=quick)
    if only in (None, "latency"):
        latency.run(report, quick=quick)
    if only in (None, "catalog"):
        catalog.run(report, quick=quick)
    if only is None and not quick:
        report.write("cluster")


def _throughput(report: Report, *, quick: bool) -> None:
    report.section(
        "1, 2 and 3 brokers on this machine",
        f"{PRODUCERS} producers through librdkafka, acks=all, {MESSAGE_BYTES} bytes, {PARTITIONS} partitions. "
        "`brokers` and `database` are processor seconds for each second; flushes, each a commit of the catalog, are of "
        "all brokers together; PUTs of flushes are for each broker, at full load and at a modest one; at rest all "
        "PUTs are counted, those of merging too. All figures of a row are of its rounds taken together: totals divided "
        "by totals.",
    )
    rows: list[tuple[object, ...]] = []
    with folder("disk") as path, ExitStack() as stack:
        for number, place in enumerate(
            (
                stack.enter_context(on_one_machine(path / "one")),
                stack.enter_context(on_servers(path / "servers")),
            )
        ):
            rows += _compare(place, quick=quick, number=number)
    report.table(
        (
            *("place", "brokers", "MB/s", "against 1", "brokers CPU", "database CPU", "CPU s/GB"),
            *(
                "flushes/s",
                "kB/flush",
                "PUT/s each",
                f"at {PACED_PER_S * MESSAGE_BYTES / 1e6:.0f} MB/s",
                "at rest",
            ),
        ),
        rows,
    )


def _compare(place: Place, *, quick: bool, number: int) -> list[tuple[object, ...]]:
    found: dict[int, list[Round]] = {count: [] for count in COUNTS}
    for turn in range(1 if quick else ROUNDS):
        for count in COUNTS:
            found[count].append(_measure(place, count, f"t{number}-{turn}-{count}", quick=quick))
            print(f"   {place.name}, {count}: {found[count][-1]}", flush=True)
    rows = {count: pooled(each) for count, each in found.items()}
    return [
        (
            *(
                place.name,
                count,
                f"{each['mb_per_s']:.1f}",
                f"{each['mb_per_s'] / rows[1]['mb_per_s']:.2f}",
            ),
            *(f"{each['cpu']:.2f}", f"{each['database']:.2f}", f"{each['cpu_s_per_gb']:.1f}"),
            *(
                f"{each['commits']:.0f}",
                f"{each['kb']:.0f}",
                f"{each['puts']:.1f}",
                f"{each['paced_puts']:.1f}",
                f"{each['rest_puts']:.2f}",
            ),
        )
        for count, each in rows.items()
    ]


def _measure(place: Place, count: int, topic: str, *, quick: bool) -> Round:
    with brokers(place, count) as running:
        address = ",".join(each.listeners["kafka"] for each in running)
        _create(address, topic)
        taken_s = QUICK_SECONDS if quick else SECONDS
        spent, sent = _loaded(place, running, address, topic, taken_s, 0)
        paced, slowly = _loaded(place, running, address, topic, taken_s, PACED_PER_S)
        rest_s = QUICK_REST_S if quick else REST_S
        rest_puts = _puts_at_rest(place, running, rest_s)
    return Round(
        brokers=count,
        seconds=sent["seconds"],
        megabytes=sent["sent"] * MESSAGE_BYTES / 1e6,
        cpu_s=spent["cpu"],
        database_s=spent["database"],
        flushes=spent["commits"],
        flushed_bytes=spent["bytes"],
        puts=spent["journals"],
        paced_seconds=slowly["seconds"],
        paced_puts=paced["journals"],
        rest_seconds=rest_s,
        rest_puts=rest_puts,
    )


def _loaded(
    place: Place, running: list[Broker], address: str, topic: str, seconds: float, per_second: int
) -> tuple[dict[str, float], dict[str, float]]:
    """The resources used, and what was sent."""
    before = _counts(place, running)
    sent = _produce(address, topic, seconds, per_second)
    after = _counts(place, running)
    if sent["failed"]:
        raise RuntimeError(f"{sent['failed']} messages were not delivered")
    return {name: after[name] - before[name] for name in before}, sent


def _puts_at_rest(place: Place, running: list[Broker], rest_s: float) -> float:
    """PUTs during `rest_s`, measured after merging has worked off what the load left."""
    for _ in range(SETTLED_S_MAX // SETTLED_S):
        before = _counts(place, running)["puts"]
        time.sleep(SETTLED_S)
        if _counts(place, running)["puts"] == before:
            break
    before = _counts(place, running)["puts"]
    time.sleep(rest_s)
    return _counts(place, running)["puts"] - before


def _counts(place: Place, running: list[Broker]) -> dict[str, float]:
    def total(name: str, **labels: str) -> float:
        return sum(each.metric(name, **labels) for each in running)

    journals = total("millpond_store_operations_total", operation="append")
    return {
        "cpu": sum(each.cpu_s() for each in running),
        "database": cpu_of(place.postgres_pid) if place.postgres_pid else 0.0,
        "commits": total("millpond_log_flushes_total"),
        "bytes": total("millpond_log_append_bytes_total"),
        "journals": journals,
        "puts": journals + total("millpond_store_operations_total", operation="put"),
    }


def _create(address: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result(30)


def _produce(address: str, topic: str, seconds: float, per_second: int) -> dict[str, float]:
    order = {
        "per_second": per_second // PRODUCERS,
        "address": address,
        "topic": topic,
        "partitions": PARTITIONS,
        "bytes": MESSAGE_BYTES,
        "seconds": seconds,
    }
    command = [sys.executable, "-m", "benchmarks.cluster.load", json.dumps(order)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    loads = [subprocess.Popen(command, **pipes) for _ in range(PRODUCERS)]
    for each in loads:
        assert each.stdout is not None
        each.stdout.readline()
    results = []
    for each in loads:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in loads:
        out, _ = each.communicate(timeout=300)
        results.append(json.loads(out.splitlines()[-1]))
    return {
        "sent": sum(each["sent"] for each in results),
        "failed": sum(each["failed"] for each in results),
        "seconds": max(each["seconds"] for each in results),
    }


__all__ = ["run"]
