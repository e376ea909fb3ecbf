"""`millpond cluster`: shows the brokers that share a catalog and what each of them owns, and moves ownership."""

import time
from collections.abc import Callable
from typing import Any, Final

import click

from millpond.cli.connection import admin_of
from millpond.cli.options import broker_options, json_option
from millpond.cli.output import count_text, print_json, print_note, print_table, stderr_is_terminal
from millpond.cli.suggestions import SuggestingGroup
from millpond.client import Admin, Cluster, ClusterBroker
from millpond.model.addresses import INTERFACES
from millpond.model.errors import TimedOut

POLL_INTERVAL_S: Final = 0.2
WAIT_S: Final = 60.0

wait_option = click.option(
    "--wait",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=WAIT_S,
    show_default=True,
    help="Maximum time to wait for completion; 0 returns immediately.",
)


@click.group(cls=SuggestingGroup)
def cluster() -> None:
    """Show the brokers and what they own; drain a broker; rebalance."""


@cluster.command(epilog="\b\nExample:\n  millpond cluster status")
@broker_options
@json_option
def status(address: str, timeout: float, as_json: bool) -> None:
    """Show the brokers, their addresses, and what each of them owns."""
    with admin_of(address, timeout) as admin:
        _show(admin.cluster(), as_json)


@cluster.command(
    epilog="\b\nExamples:\n  millpond cluster drain 2\n  millpond cluster drain 2 --undo\n"
    "  millpond cluster drain 2 --wait 0 --json"
)
@click.argument("node", type=click.IntRange(min=1))
@click.option("--undo", is_flag=True, help="Undo a drain: the broker may own partitions again.")
@wait_option
@broker_options
@json_option
def drain(node: int, undo: bool, wait: float, address: str, timeout: float, as_json: bool) -> None:
    """Drain broker NODE: it hands over everything it owns. Returns when it owns nothing.

    The broker keeps running and redirects its clients. It receives no partitions until the drain is undone or the
    broker is restarted. A broker that receives SIGTERM drains itself.
    """
    with admin_of(address, timeout) as admin:
        found = admin.drain(node, undo=undo)
        done = _is_even if undo else _is_drained(node)
        _show(_until(admin, found, done, wait, f"broker {node}"), as_json)


@cluster.command(epilog="\b\nExample:\n  millpond cluster rebalance")
@wait_option
@broker_options
@json_option
def rebalance(wait: float, address: str, timeout: float, as_json: bool) -> None:
    """Distribute partitions evenly among the brokers.

    Brokers do so themselves whenever a broker joins or leaves; use this to be sure.
    """
    with admin_of(address, timeout) as admin:
        _show(_until(admin, admin.rebalance(), _is_even, wait, "the brokers"), as_json)


def _is_even(found: Cluster) -> bool:
    return found.is_even


def _is_drained(node: int) -> Callable[[Cluster], bool]:
    """A broker that has left owns nothing either. If all brokers leave, there is none to take over."""

    def is_drained(found: Cluster) -> bool:
        broker = found.broker(node)
        return broker is None or broker.is_empty

    return is_drained


def _until(admin: Admin, found: Cluster, done: Callable[[Cluster], bool], wait_s: float, who: str) -> Cluster:
    deadline = time.monotonic() + wait_s
    shown = ""
    while wait_s and not done(found):
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"Not complete after {wait_s:g} s; it continues in the background: {who} {_progress(found)}. "
                "`millpond cluster status` shows the progress.",
                timeout_ms=int(wait_s * 1000),
            )
        if stderr_is_terminal() and (progress := _progress(found)) != shown:
            print_note(shown := progress)
        time.sleep(POLL_INTERVAL_S)
        found = admin.cluster()
    return found


def _progress(found: Cluster) -> str:
    return ", ".join(f"{each.node_id}: {count_text(each.partitions, 'partition')}" for each in found.brokers)


def _show(found: Cluster, as_json: bool) -> None:
    if as_json:
        print_json(_facts(found))
        return
    owned = count_text(found.partitions, "partition")
    unowned = f", {found.unowned:,} without an owner" if found.unowned else ""
    click.echo(f"{found.id}  {count_text(len(found.brokers), 'broker')}, {owned}{unowned}")
    click.echo()
    titles = ("NODE", "STATE", "PARTITIONS", "SHARDS", "LEASE", *map(str.upper, INTERFACES), "MACHINE")
    print_table(titles, [_row(each) for each in found.brokers])


def _row(each: ClusterBroker) -> tuple[object, ...]:
    return (
        *(each.node_id, _state(each), each.partitions, each.coordinator_shards),
        f"{each.lease_ms / 1000:.1f} s",
        *(each.listeners.get(interface, "-") for interface in INTERFACES),
        each.machine or "-",
    )


def _state(each: ClusterBroker) -> str:
    if each.lease_ms < 0:
        return "silent"
    if not each.is_draining:
        return "serving"
    return "drained" if each.is_empty else "draining"


def _facts(found: Cluster) -> dict[str, Any]:
    return {
        "cluster_id": found.id,
        "version": found.version,
        "partitions": found.partitions,
        "unowned": found.unowned,
        "even": found.is_even,
        "brokers": [
            {
                "node_id": each.node_id,
                "state": _state(each),
                "partitions": each.partitions,
                "coordinator_shards": each.coordinator_shards,
                "lease_ms": each.lease_ms,
                "listeners": dict(each.listeners),
                "machine": each.machine,
            }
            for each in found.brokers
        ],
    }
