"""Part `queue`: publish, deliver and acknowledge, durable, compared with NATS JetStream with `sync_interval:
always`.

Both run in turn in one run, through their own Python clients, in separate processes on the same machine. Two
measurements of the queue alone follow: what one blocked key costs the others, and what one unacknowledged
message costs under many others.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.engine.setup import folder
from benchmarks.queues import blocked_messages
from benchmarks.queues.broker import running
from benchmarks.report import Report

ROUNDS = 3
MESSAGES, QUICK_MESSAGES = 40_000, 4_000
SIZE, WINDOW, PREFETCH, KEYS = 100, 500, 2_000, 1_000
JETSTREAM = Path(__file__).with_name("jetstream.py")

Ask = Callable[..., dict[str, float]]
Rates = dict[str, list[dict[str, float]]]


def run(*, quick: bool = False, only: str | None = None) -> None:
    """Writes results/queue.md, unless `only` or `quick` is set."""
    report = Report("Queue", "make bench PART=queue" + (" (quick)" if quick else ""))
    if only in (None, "rates"):
        _rates(report, quick=quick)
    if only in (None, "blocked_messages"):
        blocked_messages.run(report, quick=quick)
    if only is None and not quick:
        report.write("queue")


def _rates(report: Report, *, quick: bool) -> None:
    from peers import nats  # imported when it is needed

    report.section(
        "Messages of 100 bytes, durable",
        f"`publish`: one publisher, {WINDOW} messages in flight, answered when it is on the disk. `deliver + ack`: "
        "a backlog is worked off, from the first delivery on; ours counts when the acknowledgement is durable, "
        "JetStream's ack is not answered. "
        "`end to end`: publisher and consumers at once, latency from before the publish to the acknowledgement. "
        f"JetStream fsyncs every write (`sync_interval: always`). {ROUNDS} rounds in turns.",
    )
    found: dict[str, tuple[Rates, Rates]] = {}
    messages = QUICK_MESSAGES if quick else MESSAGES
    with folder("disk") as path:
        for number in range(1 if quick else ROUNDS):
            for mode in ("shared", "key_shared"):
                for consumers in (1, 8):
                    load = f"{mode}, {consumers} consumer{'s' * (consumers > 1)}"
                    ours, theirs = found.setdefault(load, ({}, {}))
                    place = path / f"{number}-{mode}-{consumers}"
                    with running(place / "ours") as address:
                        _add(ours, _ours(address, mode, consumers, messages))
                    if mode == "shared":
                        with nats.running(place / "nats", {"sync_interval": "always"}) as server:
                            _add(
                                theirs,
                                _theirs(str(nats.python()), f"nats://{server.address}", consumers, messages),
                            )
                    print(f"   {load}: {ours} {theirs}", flush=True)
    _tabulate(report, found, messages)


def _ours(address: str, mode: str, consumers: int, messages: int) -> dict[str, dict[str, float]]:
    base = {
        "address": address,
        "mode": mode,
        "messages": messages,
        "size": SIZE,
        "window": WINDOW,
        "prefetch": max(PREFETCH // consumers, 100),
        "keys": KEYS if mode == "key_shared" else 0,
        "consumers": consumers,
    }

    def ask(do: str, topic: str) -> Any:
        return _started(
            [sys.executable, "-m", "benchmarks.queues.load", json.dumps({**base, "do": do, "topic": topic})]
        )

    return _scenario(ask)


def _theirs(python: str, url: str, consumers: int, messages: int) -> dict[str, dict[str, float]]:
    base = {"url": url, "messages": messages, "size": SIZE, "window": WINDOW, "consumers": consumers}

    def ask(do: str, topic: str) -> Any:
        return _started([python, str(JETSTREAM), json.dumps({**base, "do": do, "topic": topic})])

    return _scenario(ask)


def _scenario(ask: Callable[[str, str], Any]) -> dict[str, dict[str, float]]:
    _ended(ask("prepare", "backlog"))
    publish = _ended(ask("publish", "backlog"))
    consume = _ended(ask("consume", "backlog"))
    _ended(ask("prepare", "both"))
    consuming = ask("consume", "both")
    publishing = ask("publish", "both")
    _ended(publishing)
    return {"publish": publish, "deliver + ack": consume, "end to end": _ended(consuming)}


def _started(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _ended(process: "subprocess.Popen[str]") -> dict[str, float]:
    out, _ = process.communicate(timeout=300)
    if process.returncode != 0:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    answer: dict[str, float] = json.loads(out or "{}")
    return answer


def _add(rates: Rates, measured: dict[str, dict[str, float]]) -> None:
    for what, each in measured.items():
        rates.setdefault(what, []).append(each)


def _tabulate(report: Report, found: dict[str, tuple[Rates, Rates]], messages: int) -> None:
    rows = []
    for load, (ours, theirs) in found.items():
        peer = theirs or found[load.replace("key_shared", "shared")][1]
        for what, rounds in ours.items():
            rate = messages / statistics.median(each["seconds"] for each in rounds)
            other = messages / statistics.median(each["seconds"] for each in peer[what])
            p50, p99 = (statistics.median(each[name] for each in rounds) * 1000 for name in ("p50", "p99"))
            peer_p99 = statistics.median(each["p99"] for each in peer[what]) * 1000
            latencies = (
                ("", "", "") if what == "deliver + ack" else (f"{p50:.1f}", f"{p99:.1f}", f"{peer_p99:.1f}")
            )
            rows.append((load, what, f"{rate:,.0f}", f"{other:,.0f}", f"{rate / other:.2f}", *latencies))
    report.table(
        ("load", "what", "messages/s", "JetStream", "ratio", "p50 ms", "p99 ms", "JetStream p99 ms"), rows
    )


__all__ = ["run"]
