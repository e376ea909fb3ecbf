"""Part `interfaces`: the client library, raw gRPC and HTTP, durable on a disk, with the load on the same machine.

Each is compared with a peer in the same run that shows the cost of the transport alone: a server with the
same library that responds and stores nothing. The peer of the client library is librdkafka with the same
broker. Ratios are ours divided by the peer's. Results are medians of interleaved rounds.
"""

import statistics
from collections.abc import Callable

from benchmarks.engine.setup import folder
from benchmarks.interfaces import client, http, rpc
from benchmarks.interfaces.measured import Measured
from benchmarks.interfaces.servers import Servers, running
from benchmarks.report import Report

ROUNDS = 3

Measure = Callable[[Servers, bool], list[Measured]]
MEASURES: dict[str, Measure] = {
    "client": client.measure,
    "grpc": rpc.measure,
    "http": http.measure,
}


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/interfaces.md, unless `only` or `quick` is set."""
    report = Report("Interfaces", "make bench PART=interfaces" + (" (quick)" if quick else ""))
    report.section(
        "Messages of 100 bytes, durable",
        "Every message is answered after its bytes and its rows are on the disk. `peer` is what the same transport "
        "does without storing anything, or librdkafka (acks=all) with the same broker for the client library. The "
        "load shares the two cores with the server.",
    )
    with folder("disk") as path, running(path) as servers:
        samples: dict[str, list[Measured]] = {}
        for _ in range(1 if quick else ROUNDS):
            for name, measure in MEASURES.items():
                if only is None or only in name:
                    for each in measure(servers, quick):
                        samples.setdefault(each.name, []).append(each)
                        print(f"   {each}", flush=True)
    report.table(
        ("interface", "load", "messages/s", "p50 ms", "p99 ms", "peer", "peer messages/s", "ratio"),
        [_row(each) for each in samples.values()],
    )
    if only is None and not quick:
        report.write("interfaces")


def _row(rounds: list[Measured]) -> tuple[object, ...]:
    first = rounds[0]
    rate = statistics.median(each.rate for each in rounds)
    peer = statistics.median(each.peer_rate for each in rounds)
    p50 = statistics.median(each.p50_ms for each in rounds)
    p99 = statistics.median(each.p99_ms for each in rounds)
    return (
        first.interface,
        first.load,
        f"{rate:,.0f}",
        f"{p50:.2f}",
        f"{p99:.2f}",
        first.peer,
        f"{peer:,.0f}",
        f"{rate / peer:.2f}",
    )


__all__ = ["run"]
