"""Mistakes in the rules of flights, each as a text to be replaced, to see whether the histories of
`flight_histories.py` find them.

    python -m tests.unit.log.flight_mutants     # prints for each mistake how it was found
"""

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.queues.mutants import Mutant
from tests.unit.log.flight_histories import FlightHistory

ROOT = Path(__file__).parents[3]
FLIGHTS = "src/millpond/log/flights.py"
HISTORIES_MAX = 2_000
"""Before a mistake counts as not found."""


def _flights(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, FLIGHTS, code, instead)


MUTANTS = (
    # order
    _flights(
        "a flight is committed before an earlier one of its partition",
        "held_up.update(flight.partitions)",
        "held_up.clear()",
    ),
    _flights(
        "a flight is committed before it is uploaded",
        "free = flight.partitions - held_up if flight.phase is Phase.WAITING else NONE",
        "free = flight.partitions - held_up",
    ),
    _flights(
        "only flights that are uploading hold up later ones",
        "            held_up.update(flight.partitions)",
        "            if flight.phase is Phase.UPLOADING:\n                held_up.update(flight.partitions)",
    ),
    _flights(
        "a slow upload delays the whole flight behind it", "if free and not flight.is_joint:", "if False:"
    ),
    _flights("a joint flight is split", "if free and not flight.is_joint:", "if free:"),
    _flights(
        "what is split off holds up later flights",
        "            if free and not flight.is_joint:\n"
        "                ready.append(self._split(flight, free))\n"
        "            held_up.update(flight.partitions)",
        "            held_up.update(flight.partitions)\n"
        "            if free and not flight.is_joint:\n"
        "                ready.append(self._split(flight, free))",
    ),
    _flights("a flight is ready twice", "flight.phase = Phase.COMMITTING"),
    _flights(
        "a flight that is split off goes behind all others",
        "self._order.insert(self._order.index(flight), part)",
        "self._order.append(part)",
    ),
    _flights(
        "a flight keeps the partitions that were split off", "        flight.partitions -= partitions\n", ""
    ),
    _flights("ready flights are committed in another order", "return ready\n", "return ready[::-1]\n"),
    # failing forward
    _flights(
        "a flight has one predecessor",
        "[each for each in self._order if not each.is_joint and not partitions.isdisjoint(each.partitions)]",
        "[each for each in self._order if not each.is_joint and not partitions.isdisjoint(each.partitions)][-1:]",
    ),
    _flights(
        "later flights depend on a joint one",
        "[each for each in self._order if not each.is_joint and not partitions",
        "[each for each in self._order if not partitions",
    ),
    _flights(
        "a failed flight fails every partition of the later ones",
        "return self.partitions.intersection(\n"
        "            [topic_partition for earlier in self.predecessors for topic_partition in earlier.refused]\n"
        "        )",
        "return self.partitions if any(each.refused for each in self.predecessors) else NONE",
    ),
    _flights(
        "a refused share fails nothing behind it",
        "self.refused = refused",
    ),
    _flights(
        "a failed upload fails nothing behind it",
        "flight.record_refusals(refused)  #",
        "pass  #",
    ),
    _flights(
        "what is split off depends on nothing",
        "[each for each in flight.predecessors if not partitions.isdisjoint(each.partitions)]",
        "[]",
    ),
    _flights("nothing depends on what is split off", "later.predecessors += (part,)"),
    _flights(
        "a flight that the writer has gets another predecessor",
        "if flight in later.predecessors and not partitions.isdisjoint(later.partitions):",
        "if flight in later.predecessors:",
    ),
    _flights(
        "a joint flight fails what is buffered",
        "failing = NONE if flight.is_joint else refused",
        "failing = refused",
    ),
    _flights("what is buffered does not fail", "        return failing", "        return NONE"),
    _flights("an ended flight keeps earlier ones in memory", "flight.predecessors = ()  #", "pass  #"),
    # accepting
    _flights(
        "a partition accepts appends while later shares are failing",
        "later.condemned |= failing & later.partitions",
    ),
    _flights(
        "a failure closes partitions that it does not touch",
        "later.condemned |= failing & later.partitions",
        "later.condemned |= later.partitions",
    ),
    _flights(
        "every later flight is condemned",
        "            if flight in later.predecessors:\n                later.condemned",
        "            if True:\n                later.condemned",
    ),
    _flights(
        "only failures open partitions again",
        "if failing or flight.condemned:",
        "if failing:",
    ),
    _flights(
        "a partition is closed until the rest of the flight has ended, too",
        "        flight.condemned -= partitions\n",
        "",
    ),
    _flights(
        "a partition opens when its share is split off", "part.condemned = flight.condemned & partitions"
    ),
    # counts
    _flights(
        "joint flights use upload slots",
        "flight.phase is Phase.UPLOADING and not flight.is_joint",
        "flight.phase is Phase.UPLOADING",
    ),
    _flights(
        "joint flights are counted as ordinary ones", "self.ordinary += not is_joint", "self.ordinary += 1"
    ),
    _flights(
        "joint flights are taken from the ordinary ones",
        "self.ordinary -= not flight.is_joint",
        "self.ordinary -= 1",
    ),
    _flights("a flight that is split off is not counted", "self.ordinary += 1\n", "pass\n"),
    _flights(
        "inline flights overtake those that wait",
        "if flight.phase is not Phase.COMMITTING\n",
        "if flight.phase is Phase.UPLOADING\n",
    ),
)


def mutated(mutant: Mutant, folder: Path) -> ModuleType:
    """The module with the mistake."""
    path = folder / mutant.path
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / mutant.path, path)
    mutant.apply(folder)
    spec = importlib.util.spec_from_file_location("mutated_flights", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(module: ModuleType, histories: int = HISTORIES_MAX) -> str | None:
    """How the histories fail on this module; None if they pass."""
    chosen = settings(
        max_examples=histories, stateful_step_count=40, phases=[Phase.generate], derandomize=True, database=None,
        deadline=None, report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    kind = type("MutatedHistory", (FlightHistory,), {"flights_module": module})
    try:
        run_state_machine_as_test(kind, settings=chosen)
    except Exception as error:  # noqa: BLE001  # a mistake may show in whatever way
        return f"{type(error).__name__}: {error}".split("\n")[0]
    return None


def main(chosen: str = "") -> int:
    missed = 0
    for mutant in [each for each in MUTANTS if chosen in each.name]:
        with tempfile.TemporaryDirectory(prefix="millpond-flights-") as folder:
            how = found(mutated(mutant, Path(folder)))
        missed += how is None
        print(f"{'not found' if how is None else 'found':10} {mutant.name}: {how or ''}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
