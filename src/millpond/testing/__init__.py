"""Test support for code that uses Millpond: a real broker in this process, a clock that tests can advance,
injected faults.

Names are imported on first use: `plugin` is loaded in every pytest run, and most runs need no broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millpond.testing.broker import running_broker
    from millpond.testing.clock import SimulatedClock
    from millpond.testing.faults import Faults, FaultyStore, Hold
    from millpond.testing.millpond import Millpond

__all__ = ["Faults", "FaultyStore", "Hold", "Millpond", "SimulatedClock", "running_broker"]

_MODULE_OF = {
    "Faults": "millpond.testing.faults",
    "FaultyStore": "millpond.testing.faults",
    "Hold": "millpond.testing.faults",
    "Millpond": "millpond.testing.millpond",
    "SimulatedClock": "millpond.testing.clock",
    "running_broker": "millpond.testing.broker",
}


def __getattr__(name: str) -> object:
    home = _MODULE_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
