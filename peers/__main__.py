"""Real peers on loopback.

python -m peers list                                        what there is, and what is installed
python -m peers install [PEER …]                            all of them, if none is named
python -m peers start kafka|minio|nats FOLDER [--port N] [--set key=value …]
python -m peers stop FOLDER                                 ends what `start` began there
python -m peers tool [--version 3.9.2] TOOL [arguments …]   a tool of Kafka's, such as `tool topics --list …`
python -m peers table                                       renews docs/reference/clients.md from the last run
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from peers import clients, kafka, server
from peers.home import Unavailable
from peers.inventory import PEERS, SERVERS


def main(arguments: Sequence[str]) -> int:
    given = _parser().parse_args(arguments)
    try:
        status: int = given.run(given)
    except Unavailable as reason:
        print(reason, file=sys.stderr)
        return 1
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("list").set_defaults(run=_list)
    install = commands.add_parser("install")
    install.add_argument("names", nargs="*", metavar="PEER", help=", ".join(PEERS))
    install.set_defaults(run=_install)
    start = commands.add_parser("start")
    start.add_argument("name", choices=SERVERS)
    start.add_argument("folder", type=Path)
    start.add_argument("--port", type=int, default=0)
    start.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    start.set_defaults(run=_start)
    stop = commands.add_parser("stop")
    stop.add_argument("folder", type=Path)
    stop.set_defaults(run=_stop)
    tool = commands.add_parser("tool")
    tool.add_argument("--version", default=kafka.VERSION, choices=kafka.VERSIONS)
    tool.add_argument("tool", choices=kafka.TOOLS)
    tool.add_argument("arguments", nargs=argparse.REMAINDER)
    tool.set_defaults(run=_tool)
    commands.add_parser("table").set_defaults(run=_table)
    return parser


def _list(_: argparse.Namespace) -> int:
    print(f"{'peer':<11} {'version':<10} {'installed':<10} needs")
    for peer in PEERS.values():
        missing = peer.missing()
        needs = ", ".join(f"{each} (missing)" if each in missing else each for each in peer.needs) or "-"
        version = peer.version if len(peer.version) <= 10 else peer.version[:9] + "…"
        print(f"{peer.name:<11} {version:<10} {'yes' if peer.place() else 'no':<10} {needs}")
    return 0


def _install(given: argparse.Namespace) -> int:
    """Print one line per peer. A peer that cannot be installed does not prevent the installation of the
    others."""
    unknown = [name for name in given.names if name not in PEERS]
    if unknown:
        raise Unavailable(f"There is no peer {', '.join(unknown)}; there are {', '.join(PEERS)}.")
    outcomes = [_installed(name) for name in given.names or PEERS]
    return 0 if all(outcomes) else 1


def _installed(name: str) -> bool:
    try:
        PEERS[name].install()
    except Unavailable as reason:
        print(f"{name}: not installed. {reason}", flush=True)
        return False
    print(f"{name}: {PEERS[name].place()}", flush=True)
    return True


def _start(given: argparse.Namespace) -> int:
    settings = dict(pair.split("=", 1) for pair in given.set)
    plan = SERVERS[given.name](given.folder, settings, given.port)
    print(server.start(plan).shown())
    return 0


def _stop(given: argparse.Namespace) -> int:
    server.stop(given.folder.resolve())
    return 0


def _tool(given: argparse.Namespace) -> int:
    """Replace this process with the tool, which keeps the terminal."""
    command = kafka.tool(given.tool, *given.arguments, version=given.version)
    os.execv(command[0], command)


def _table(_: argparse.Namespace) -> int:
    print(clients.write_page())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
