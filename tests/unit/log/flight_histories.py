"""Random histories of flights, compared with a naive model.

The history plays every part around the rules: producers that append, buffers that are launched, uploads that end in
any order, a writer that commits in the order of submission and refuses what it likes, and an event loop that hears of
the outcomes later. The model knows nothing of flights that are split: it follows each partition's share alone.
"""

from dataclasses import dataclass, field
from types import ModuleType

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millpond.log import flights as real

PARTITIONS = ("a", "b", "c")
SOME = st.frozensets(st.sampled_from(PARTITIONS), min_size=1)
REFUSED = st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(PARTITIONS)))
"""What the catalog refuses of any commit."""
UPLOADS = st.sampled_from([True, True, False])
SPLITTING = [
    [frozenset(each) for each in launches] for launches in (("a", "b", "abc", "c"), ("a", "b", "ab"))
]
"""The third flight may be split twice while the fourth is committing; its part may be condemned."""
CHOICE = st.integers(0, 5)


@dataclass(eq=False)
class Share:
    """One partition's appends in one launch."""

    launch: "Launch"
    partition: str
    appends: list[int]
    behind: list["Share"]
    """Ordinary shares of the same partition that were in flight when this one was launched."""
    committing: bool = False
    refused: bool = False
    """The writer has refused it."""
    ended: bool = False

    @property
    def is_doomed(self) -> bool:
        return any(earlier.refused for earlier in self.behind)

    @property
    def is_condemned(self) -> bool:
        """The event loop knows that it will be refused."""
        return not self.ended and any(earlier.refused and earlier.ended for earlier in self.behind)


@dataclass(eq=False)
class Launch:
    is_joint: bool
    uploading: bool
    shares: dict[str, Share] = field(default_factory=dict)


class Model:
    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def shares(self, partition: str | None = None) -> list[Share]:
        """Those that have not ended, in launch order."""
        found = [share for launch in self.launches for share in launch.shares.values()]
        return [share for share in found if not share.ended and partition in (None, share.partition)]

    def launch(self, appends: dict[str, list[int]], *, uploads: bool, is_joint: bool) -> Launch:
        launch = Launch(is_joint, uploads)
        for partition, numbers in appends.items():
            behind = [each for each in self.shares(partition) if not each.launch.is_joint]
            launch.shares[partition] = Share(launch, partition, numbers, behind)
        self.launches.append(launch)
        return launch

    def take_ready(self) -> list[tuple[Launch, set[str]]]:
        """Each launch with the partitions of it that begin to commit now."""
        ready = []
        for launch in self.launches:
            free = {share.partition for share in launch.shares.values() if self._is_free(share)}
            if launch.is_joint and len(free) < len(launch.shares):
                free = set()
            for partition in free:
                launch.shares[partition].committing = True
            if free:
                ready.append((launch, free))
        return ready

    def _is_free(self, share: Share) -> bool:
        if share.launch.uploading or share.committing or share.ended:
            return False
        earlier = self.shares(share.partition)
        return all(each.committing for each in earlier[: earlier.index(share)])


class Cargo:
    """The shares of a flight, as the model has them."""

    def __init__(self, launch: Launch, shares: dict[str, Share]) -> None:
        self.launch, self.shares = launch, shares

    def split(self, topic_partitions):
        part = {partition: self.shares.pop(partition) for partition in topic_partitions}
        assert part, "a part has partitions"
        assert self.shares, "something remains"
        return Cargo(self.launch, part)


class FlightHistory(RuleBasedStateMachine):
    flights_module: ModuleType = real

    def __init__(self) -> None:
        super().__init__()
        self.flights = self.flights_module.Flights()
        self.model = Model()
        self.uploading: list = []
        self.to_writer: list = []
        self.to_loop: list = []
        self.handed_over: dict = {}
        """What the writer thread reads of a flight, as it was when the flight was handed over."""
        self.buffered: dict[str, list[int]] = {}
        self.accepted = 0
        self.committed: list[int] = []
        self.commit_order: dict[str, list[int]] = {partition: [] for partition in PARTITIONS}
        """The numbers of the launches that were committed to each partition."""
        self.failed: set[int] = set()
        self.launched: set[int] = set()

    # -- producers --------------------------------------------------------------------------------------------

    @initialize(launches=st.one_of(st.lists(SOME, min_size=1, max_size=5), st.sampled_from(SPLITTING)))
    def start(self, launches):
        """Overlapping uploads: that is where flights are split."""
        for partitions in launches:
            self.launch(partitions, uploads=True)

    @rule(partitions=SOME)
    def append(self, partitions):
        """A condemned partition accepts nothing; what the others accept waits in the buffer."""
        for partition in sorted(partitions - self.flights.condemned):
            self.buffered.setdefault(partition, []).append(self._accept())

    @rule(partitions=SOME, uploads=UPLOADS)
    def launch(self, partitions, uploads):
        self.append(partitions)
        chosen = sorted(partitions & self.buffered.keys())
        self._launch({each: self.buffered.pop(each) for each in chosen}, uploads=uploads, is_joint=False)

    @rule(partitions=SOME, uploads=UPLOADS)
    def launch_jointly(self, partitions, uploads):
        """It waits in no buffer."""
        chosen = sorted(partitions - self.flights.condemned)
        self._launch({each: [self._accept()] for each in chosen}, uploads=uploads, is_joint=True)

    def _accept(self) -> int:
        self.accepted += 1
        return self.accepted

    def _launch(self, appends, *, uploads, is_joint):
        if not appends:
            return
        launch = self.model.launch(appends, uploads=uploads, is_joint=is_joint)
        self.launched |= {number for numbers in appends.values() for number in numbers}
        flight = self.flights.launch(
            Cargo(launch, dict(launch.shares)), frozenset(appends), uploads=uploads, is_joint=is_joint
        )
        for share in launch.shares.values():
            assert not any(each.is_condemned for each in share.behind), "a failure that is known spreads"
        if uploads:
            self.uploading.append(flight)
        self._submit_ready()

    # -- uploads ----------------------------------------------------------------------------------------------

    @precondition(lambda self: self.uploading)
    @rule(choice=CHOICE)
    def upload(self, choice):
        flight = self.uploading.pop(choice % len(self.uploading))
        flight.cargo.launch.uploading = False
        self.flights.uploaded(flight)
        self._submit_ready()

    @precondition(lambda self: self.uploading)
    @rule(choice=CHOICE)
    def fail_upload(self, choice):
        flight = self.uploading.pop(choice % len(self.uploading))
        for share in flight.cargo.shares.values():
            share.refused = True
        self._end(flight)

    def _submit_ready(self):
        ready = self.flights.take_ready()
        found = [(flight.cargo.launch, set(flight.partitions)) for flight in ready]
        assert found == self.model.take_ready()
        for flight in ready:
            assert set(flight.cargo.shares) == flight.partitions, "the cargo is split as the flight is"
            self.handed_over[flight] = flight.predecessors, flight.partitions
        self.to_writer += ready
        assert not self.flights.take_ready(), "a flight is ready once"

    # -- the writer thread ------------------------------------------------------------------------------------

    @precondition(lambda self: self.to_writer)
    @rule(refused=REFUSED)
    def commit(self, refused):
        flight = self.to_writer.pop(0)
        shares = flight.cargo.shares
        assert self.handed_over[flight] == (flight.predecessors, flight.partitions), (
            "changed behind the thread"
        )
        doomed = {partition for partition, share in shares.items() if share.is_doomed}
        assert flight.refused_earlier() == doomed
        refused = frozenset((refused | doomed) & shares.keys())
        if flight.is_joint and refused:
            refused = flight.partitions
        for partition, share in shares.items():
            share.refused = partition in refused
            if not share.refused:
                self.committed += share.appends
                self.commit_order[partition].append(self.model.launches.index(share.launch))
        flight.record_refusals(refused)
        self.to_loop.append(flight)

    # -- back on the event loop -------------------------------------------------------------------------------

    @precondition(lambda self: self.to_loop)
    @rule()
    def hear_outcome(self):
        self._end(self.to_loop.pop(0))

    def _end(self, flight):
        shares = flight.cargo.shares.values()
        refused = frozenset(share.partition for share in shares if share.refused)
        failing = self.flights.ended(flight, refused)
        assert failing == (frozenset() if flight.is_joint else refused)
        for share in shares:
            assert not share.ended, "a share ends once"
            share.ended = True
            if share.refused:
                self.failed.update(share.appends)
        for partition in failing:
            self.failed.update(self.buffered.pop(partition, []))
        assert not flight.predecessors, "a flight that has ended keeps earlier ones in memory"
        self._submit_ready()

    # -- what always holds ------------------------------------------------------------------------------------

    @invariant()
    def partitions_that_accept_nothing(self):
        condemned = {share.partition for share in self.model.shares() if share.is_condemned}
        assert self.flights.condemned == condemned

    @invariant()
    def counts(self):
        ordinary = [flight for flight in self.flights if not flight.is_joint]
        in_flight = {
            (id(each.launch), each.committing) for each in self.model.shares() if not each.launch.is_joint
        }
        assert len(in_flight) <= self.flights.ordinary == len(ordinary)
        launches = [launch for launch in self.model.launches if launch.uploading and not launch.is_joint]
        alive = [each for each in launches if not any(share.ended for share in each.shares.values())]
        assert self.flights.uploading() == len(alive)
        assert self.flights.held_up() == {
            each.partition for each in self.model.shares() if not each.committing
        }

    @invariant()
    def commits_of_a_partition_are_in_launch_order(self):
        for launches in self.commit_order.values():
            assert launches == sorted(set(launches))

    @invariant()
    def flights_are_in_launch_order(self):
        launches = [flight.cargo.launch for flight in self.flights]
        assert launches == sorted(launches, key=self.model.launches.index)
        shares = [share for flight in self.flights for share in flight.cargo.shares.values()]
        assert set(shares) == set(self.model.shares())
        assert len(shares) == len(self.model.shares())

    def teardown(self):
        """Every upload ends and every commit is heard of: nothing remains, and each append has exactly one result."""
        while self.uploading:
            self.upload(0)
        while self.to_writer or self.to_loop:
            if self.to_writer:
                self.commit(frozenset())
            else:
                self.hear_outcome()
        assert len(self.flights) == 0
        assert self.flights.condemned == frozenset()
        assert len(self.committed) == len(set(self.committed))
        assert self.failed.isdisjoint(self.committed)
        assert self.launched <= self.failed.union(self.committed)
