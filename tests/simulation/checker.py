"""What must be true, whatever happened: judged from what clients were told and from the catalog's own history."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.shards import owned_shards

from millpond.catalog.topology import LiveBroker, members, owners, shards
from millpond.model.ids import TopicId, TopicPartition
from millpond.reading.reader import StoreReader
from millpond.records import iter_records

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

READ_BYTES = 1 << 20
EXTENTS_PER_READ = 64


class Checker:
    def __init__(self, simulation: "Simulation") -> None:
        self._simulation = simulation
        self.sequences: dict[TopicPartition, dict[str, dict[bytes, None]]] = defaultdict(dict)
        """What idempotent producers have sent, in order."""
        self.plain: dict[TopicPartition, set[bytes]] = defaultdict(set)
        self.told: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        """What somebody was told is at an offset: the writer when it was answered, or a reader."""
        self.answered: dict[tuple[TopicPartition, str], int] = {}
        self.acknowledgements = 0
        self.reads = 0
        self._seen_appends = 0
        self.appends = 0
        self._committers: dict[tuple[bytes, int, int], str] = {}
        self._ends: dict[tuple[bytes, int], tuple[int, int]] = {}

    # -- while it runs ----------------------------------------------------------------------------------------

    def sent(
        self, topic_partition: TopicPartition, producer: str, batches: Sequence[Sequence[bytes]]
    ) -> None:
        known = self.sequences[topic_partition].setdefault(producer, {})
        known.update(dict.fromkeys(value for batch in batches for value in batch))

    def sent_plainly(self, topic_partition: TopicPartition, batches: Sequence[Sequence[bytes]]) -> None:
        self.plain[topic_partition].update(value for batch in batches for value in batch)

    def acknowledged(
        self, topic_partition: TopicPartition, producer: str, offset: int, values: Sequence[bytes]
    ) -> None:
        self.acknowledgements += len(values)
        for number, value in enumerate(values):
            self._tell(topic_partition, offset + number, value, f"{producer}, when it was answered")
        if offset <= self.answered.get((topic_partition, producer), -1):
            self._violate(f"{producer} was given {offset} after {self.answered[topic_partition, producer]}")
        self.answered[topic_partition, producer] = offset + len(values) - 1

    def read(self, topic_partition: TopicPartition, offset: int, value: bytes, reader: str) -> None:
        self.reads += 1
        self._tell(topic_partition, offset, value, reader)

    def _tell(self, topic_partition: TopicPartition, offset: int, value: bytes, who: str) -> None:
        known = self.told[topic_partition].setdefault(offset, value)
        if known != value:
            name = f"{topic_partition.partition}@{offset}"
            self._violate(f"{who} found {_shown(value)} at {name}, where {_shown(known)} was before")

    def _violate(self, text: str) -> None:
        self._simulation.violate(text)

    # -- at the end -------------------------------------------------------------------------------------------

    def check(self) -> None:
        for topic_partition in sorted({*self.sequences, *self.plain, *self.told}):
            self._check_log(topic_partition, self._contents(topic_partition))
        self.check_appends()
        self._check_owners()
        self._check_offsets()

    def _contents(self, topic_partition: TopicPartition) -> list[tuple[int, bytes]]:
        """From the catalog and the store, past every broker."""
        reader = StoreReader(
            self._simulation.catalog, self._simulation.store, extents_per_read=EXTENTS_PER_READ
        )
        found: list[tuple[int, bytes]] = []
        offset = 0
        while runs := reader.read_runs(topic_partition, offset, READ_BYTES):
            for run in runs:
                records = iter_records(run.data, decompressed_bytes_max=READ_BYTES)
                found += [(each.offset, bytes(each.value or b"")) for each in records]
            offset = runs[-1].end_offset
        return found

    def _check_log(self, topic_partition: TopicPartition, contents: list[tuple[int, bytes]]) -> None:
        name, end = topic_partition.partition, self._simulation.end_of(topic_partition)
        if [offset for offset, _ in contents] != list(range(end)):
            self._violate(f"partition {name}: the offsets are not dense up to {end}")
        at = dict(contents)
        for offset, value in self.told[topic_partition].items():
            if at.get(offset) != value:
                self._violate(
                    f"lost: {_shown(value)} at {name}@{offset}, now {_shown(at.get(offset, b'nothing'))}"
                )
        times = Counter(value for _, value in contents)
        for value, count in times.items():
            if count > 1:
                self._violate(f"duplicated: {_shown(value)} is {count} times in partition {name}")
        known = {
            value for values in self.sequences[topic_partition].values() for value in values
        } | self.plain[topic_partition]
        for value in times.keys() - known:
            self._violate(f"{_shown(value)} is in partition {name} and nobody sent it")
        for producer, values in self.sequences[topic_partition].items():
            self._check_order(name, producer, list(values), [value for _, value in contents])

    def _check_order(self, name: int, producer: str, sent: list[bytes], contents: list[bytes]) -> None:
        own = [value for value in contents if value.startswith(producer.encode() + b"/")]
        if missing := [value for value in sent if value not in set(own)]:
            self._violate(
                f"lost: {len(missing)} of {producer} in partition {name}, {_shown(missing[0])} first"
            )
        elif own != sent:
            self._violate(f"partition {name} has what {producer} sent in another order")

    def check_appends(self) -> None:
        """One committer in each epoch, and it is the owner: no append of anybody who was replaced. Looks at those that
        are new since it looked last."""
        committers, ends = self._committers, self._ends
        rows = self._simulation.catalog.rows(
            "SELECT * FROM sim_appends WHERE rowid > ? ORDER BY rowid", (self._seen_appends,)
        )
        self._seen_appends += len(rows)
        self.appends = self._seen_appends
        for _, committer, owner, _, topic_id, partition, base, end, epoch in rows:
            if topic_id not in self._simulation.owned_topics:
                continue
            if committer != owner:
                self._violate(f"{committer} appended {base} to {end} of {partition}, which {owner} owns")
            first = committers.setdefault((topic_id, partition, epoch), committer)
            if first != committer:
                self._violate(f"{first} and {committer} have both appended to {partition} in epoch {epoch}")
            last_end, last_epoch = ends.get((topic_id, partition), (0, 0))
            if base != last_end or epoch < last_epoch:
                self._violate(
                    f"partition {partition}: {base} in epoch {epoch} follows {last_end} in {last_epoch}"
                )
            ends[topic_id, partition] = (end, epoch)

    def _check_owners(self) -> None:
        """An epoch has one owner, and the next one is higher."""
        last: dict[str, int] = {}
        for what, owner, epoch in self._simulation.catalog.rows(
            "SELECT what, owner, epoch FROM sim_owners ORDER BY rowid"
        ):
            if epoch <= last.get(what, -1):
                self._violate(f"{what} went to {owner} in epoch {epoch} after {last[what]}")
            last[what] = epoch

    def _check_offsets(self) -> None:
        rows = self._simulation.catalog.rows("SELECT at, group_id, partition, before, now FROM sim_offsets")
        for at, group_id, partition, before, now in rows:
            if now < before:
                self._violate(
                    f"{at:.3f} group {group_id}: offset of {partition} went back, {before} to {now}"
                )

    # -- where it must come to --------------------------------------------------------------------------------

    def unsettled(self) -> str | None:
        """What is not yet as it must be when everybody is well: all owned, evenly, and every owner knows it."""
        with self._simulation.catalog.read() as tx:
            living, partitions, coordinators = members(tx), owners(tx), shards(tx)
        wanted = {node.broker.session: node for node in self._simulation.nodes.values() if node.broker}
        if {each.session for each in living} != wanted.keys():
            return f"members are {_names(living)}"
        for kind, found in (("partitions", partitions), ("shards", coordinators)):
            loads = Counter(dict.fromkeys(wanted, 0))
            loads.update(owner.session for owner in found.values())
            if loads.keys() != wanted.keys() or max(loads.values()) - min(loads.values()) > 1:
                return f"{kind} are shared out as {sorted(loads.values())}"
        for session, node in wanted.items():
            assert node.broker is not None
            owned = {
                topic_partition for topic_partition, owner in partitions.items() if owner.session == session
            }
            served = {
                each.topic_partition
                for each in node.broker.log.partitions()
                if not (each.fenced or each.in_handover)
            }
            if owned != served or not node.broker.lease.held:
                return f"{node.name} owns {len(owned)} and serves {len(served)}"
            if set(owned_shards(node.broker)) != {s for s, o in coordinators.items() if o.session == session}:
                return f"{node.name} keeps other shards than it owns"
        return None

    def failovers(self) -> list[float]:
        """Seconds from the moment a broker was gone until its lease had run out and others owned what it had."""
        deaths = dict(
            self._simulation.catalog.rows("SELECT session, at FROM sim_deaths WHERE at * 1000 > expires_at")
        )
        return [
            deaths[session] - gone_at
            for session, gone_at in self._simulation.gone.items()
            if deaths.get(session, 0) > gone_at
        ]


def topic_partition_of(topic_id: bytes, partition: int) -> TopicPartition:
    return TopicPartition(TopicId(topic_id), partition)


def _names(living: list[LiveBroker]) -> str:
    return ", ".join(sorted(each.session[:4] for each in living)) or "nobody"


def _shown(value: bytes) -> str:
    return value.rstrip(b".").decode(errors="replace")
