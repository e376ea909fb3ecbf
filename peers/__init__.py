"""Real peers on loopback, from the usual package registries: for interoperability tests and for benchmarks.

`python -m peers` installs, starts and stops them. From Python: `from peers import kafka` and `with
kafka.running(folder) as server: server.address`. Everything is kept in `.peers/` in the project's root
(`MILLPOND_PEERS_HOME` moves it). Only Python's standard library is used. A peer that cannot be installed
raises `Unavailable`.
"""

from peers.home import Unavailable
from peers.server import Server

__all__ = ["Server", "Unavailable"]
