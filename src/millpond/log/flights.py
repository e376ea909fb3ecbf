"""The rules of flushes in flight: the order in which they are committed, and what a failed one takes with it.

A flight is a sealed buffer on its way to the store and the catalog:

    launch --> UPLOADING --uploaded--> WAITING --take_ready--> COMMITTING --ended--> ENDED
    launch --> WAITING                 (no upload: it is stored inline, or by the writer thread)
    UPLOADING --ended--> ENDED         (the upload failed)

1. Shares of one partition are committed in launch order. A flight is ready when no earlier flight that is
   uploading or waiting has one of its partitions. If that holds for some of its partitions only, they are split
   off into a flight that is ready, so that a slow upload delays only the partitions in it.
2. A flush fails forward: if a share is refused, the shares of its partition in later flights (those that have
   the refused one as a predecessor) are refused when they commit, and its buffered appends fail.
3. Until the last of these has ended, the partition is condemned and accepts no append. A failure therefore ends
   instead of spreading from flush to flush.
4. A refused share fails no other share of its flight. A joint flight is the exception: all its shares are
   committed, or none. It is never split, and no later flight depends on it, because it has no sequences.

This module has no I/O, no clock and no locks. The event loop calls everything in it, with two exceptions: the
writer thread calls `Flight.refused_earlier` while it commits the flight, and `Flight.record_refusals` when it
knows the outcome. The writer thread commits flights in the order of `take_ready`, so it knows what became of
their predecessors before the event loop does.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, Generic, Protocol, Self, TypeVar

from millpond.model.ids import TopicPartition

NONE: Final[frozenset[TopicPartition]] = frozenset()


class Phase(Enum):
    UPLOADING = "uploading"
    """An upload thread stores its bytes."""
    WAITING = "waiting"
    """Earlier flights of its partitions must be committing first."""
    COMMITTING = "committing"
    """The writer thread has it, or its outcome is on the way back."""
    ENDED = "ended"


class Cargo(Protocol):
    """What a flight carries. The rules split it and never look into it."""

    def split(self, topic_partitions: AbstractSet[TopicPartition]) -> Self:
        """Move some partitions into a new cargo."""


C = TypeVar("C", bound=Cargo)


class Flight(Generic[C]):
    """A flush in flight."""

    __slots__ = ("cargo", "condemned", "is_joint", "partitions", "phase", "predecessors", "refused")

    def __init__(
        self, cargo: C, partitions: frozenset[TopicPartition], phase: Phase, *, is_joint: bool
    ) -> None:
        self.cargo = cargo
        self.partitions = partitions
        self.phase = phase
        self.is_joint = is_joint
        self.predecessors: tuple[Flight[C], ...] = ()
        """Earlier flights that share a partition with this one. Constant while it is committing."""
        self.refused = NONE
        """Partitions whose share was not committed. Set once: by the writer thread, or when the upload failed."""
        self.condemned = NONE
        """Partitions whose share will be refused, because the event loop knows that an earlier share was."""

    def refused_earlier(self) -> AbstractSet[TopicPartition]:
        """Its partitions whose share of an earlier flight was refused. Their shares must not be committed."""
        if not self.predecessors:
            return NONE
        return self.partitions.intersection(
            [topic_partition for earlier in self.predecessors for topic_partition in earlier.refused]
        )

    def record_refusals(self, refused: frozenset[TopicPartition]) -> None:
        """The commit refused these shares, or failed as a whole. Must be called before a later flight commits."""
        self.refused = refused


class Flights(Generic[C]):
    """All flights that have not ended, in launch order."""

    def __init__(self) -> None:
        self._order: list[Flight[C]] = []
        self.condemned = NONE
        """Partitions that accept no append, because shares in flight are about to be refused."""
        self.ordinary = 0
        """The number of flights that are not joint. Counted, because each append asks for it."""

    # -- events -----------------------------------------------------------------------------------------------

    def launch(
        self, cargo: C, partitions: frozenset[TopicPartition], *, uploads: bool, is_joint: bool = False
    ) -> Flight[C]:
        flight = Flight(cargo, partitions, Phase.UPLOADING if uploads else Phase.WAITING, is_joint=is_joint)
        flight.predecessors = tuple(
            [each for each in self._order if not each.is_joint and not partitions.isdisjoint(each.partitions)]
        )
        self._order.append(flight)
        self.ordinary += not is_joint
        return flight

    def uploaded(self, flight: Flight[C]) -> None:
        assert flight.phase is Phase.UPLOADING, "a flight is uploaded once"
        flight.phase = Phase.WAITING

    def take_ready(self) -> list[Flight[C]]:
        """The flights that can be committed now, split off from their flight where necessary. They must be given to
        the writer thread in this order."""
        ready = []
        held_up: set[TopicPartition] = set()
        for flight in list(self._order):
            if flight.phase is Phase.COMMITTING:
                continue
            free = flight.partitions - held_up if flight.phase is Phase.WAITING else NONE
            if len(free) == len(flight.partitions):
                ready.append(flight)
                continue
            if free and not flight.is_joint:
                ready.append(self._split(flight, free))
            held_up.update(flight.partitions)
        for flight in ready:
            flight.phase = Phase.COMMITTING
        return ready

    def ended(self, flight: Flight[C], refused: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """The flight was committed without the refused shares, or failed and all of them were refused. Returns the
        partitions whose buffered appends fail with it."""
        assert flight.phase is not Phase.WAITING, "a flight ends with its upload or its commit"
        self._order.remove(flight)
        self.ordinary -= not flight.is_joint
        if flight.phase is Phase.UPLOADING:
            flight.record_refusals(refused)  # the writer thread never sees this flight, only the later ones
        flight.phase = Phase.ENDED
        flight.predecessors = ()  # otherwise each flight would keep all earlier flights in memory
        failing = NONE if flight.is_joint else refused
        if failing or flight.condemned:
            self._condemn_behind(flight, failing)
        return failing

    # -- questions --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Flight[C]]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def uploading(self) -> int:
        """The number of flights that use an upload slot. Joint flights use none."""
        return sum([flight.phase is Phase.UPLOADING and not flight.is_joint for flight in self._order])

    def held_up(self) -> set[TopicPartition]:
        """Partitions of flights that are not committing yet: a new flight of theirs would have to wait."""
        return {
            topic_partition
            for flight in self._order
            if flight.phase is not Phase.COMMITTING
            for topic_partition in flight.partitions
        }

    # -- inside -----------------------------------------------------------------------------------------------

    def _split(self, flight: Flight[C], partitions: frozenset[TopicPartition]) -> Flight[C]:
        """Move some partitions of a waiting flight into a new flight in front of it."""
        part = Flight(flight.cargo.split(partitions), partitions, flight.phase, is_joint=False)
        part.predecessors = tuple(
            [each for each in flight.predecessors if not partitions.isdisjoint(each.partitions)]
        )
        part.condemned = flight.condemned & partitions
        flight.partitions -= partitions
        flight.condemned -= partitions
        self._order.insert(self._order.index(flight), part)
        self.ordinary += 1
        for later in self._order:
            if flight in later.predecessors and not partitions.isdisjoint(later.partitions):
                later.predecessors += (part,)
        return part

    def _condemn_behind(self, flight: Flight[C], failing: frozenset[TopicPartition]) -> None:
        for later in self._order:
            if flight in later.predecessors:
                later.condemned |= failing & later.partitions
        self.condemned = NONE.union(*[each.condemned for each in self._order])
