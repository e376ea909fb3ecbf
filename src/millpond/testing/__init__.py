"""For tests of code that uses Millpond: a real broker in this process, time that can be moved, faults on demand."""

from millpond.testing.broker import running_broker
from millpond.testing.clock import SimulatedClock
from millpond.testing.faults import Faults, FaultyStore, Hold

__all__ = ["Faults", "FaultyStore", "Hold", "SimulatedClock", "running_broker"]
