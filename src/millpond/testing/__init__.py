"""For tests of code that uses Millpond: a real broker in this process, time that can be moved, faults on demand.

Names are loaded when they are first used: `plugin` is part of every pytest run, and most of them need no broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.testing.broker import running_broker
    from millpond.testing.clock import SimulatedClock
    from millpond.testing.faults import Faults, FaultyStore, Hold
    from millpond.testing.millpond import Millpond

__all__ = ["Faults", "FaultyStore", "Hold", "Millpond", "SimulatedClock", "running_broker"]

_HOME_OF = {
    "Faults": "millpond.testing.faults",
    "FaultyStore": "millpond.testing.faults",
    "Hold": "millpond.testing.faults",
    "Millpond": "millpond.testing.millpond",
    "SimulatedClock": "millpond.testing.clock",
    "running_broker": "millpond.testing.broker",
}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
