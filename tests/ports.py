"""Ports for servers that are to come back under the port they had.

They lie below those that the kernel gives to outgoing connections: while a server is away, one of the clients that try
to reach it could be given its port. Each process of pytest-xdist has some of its own, so that no other test takes one
between the question and the answer.
"""

import itertools
import os
import random
import socket

FIRST, LAST = 10_000, 32_000
PROCESSES_MAX = 16


def _own() -> range:
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % PROCESSES_MAX
    size = (LAST - FIRST) // PROCESSES_MAX
    return range(FIRST + number * size, FIRST + (number + 1) * size)


_ports = itertools.cycle(random.sample(_own(), len(_own())))


def free_port() -> int:
    """One that nobody listens on now, and that this process has not given away lately."""
    for port in _ports:
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
    raise AssertionError("the cycle has no end")


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"
