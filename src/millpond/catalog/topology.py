"""The topology of the cluster: which brokers exist, and which broker owns what. A version shows whether it
has changed.

Every change of topics, brokers or owners raises the version in the same transaction. This also serialises
such changes: the version's row stays locked until they commit, so no two of them start from the same view.
Each partition stores the version at which it got its owner (`moved`), so that a reader with a hundred
thousand partitions reads only those that changed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from millpond.catalog.database import CatalogTransaction, Row
from millpond.model.ids import Session, TopicId, TopicPartition
from millpond.model.placement import spread

BUMP_VERSION: Final = "UPDATE counters SET next = next + 1 WHERE name = 'topology' RETURNING next"
VERSION: Final = "SELECT next FROM counters WHERE name = 'topology'"
MEMBERS: Final = """
    SELECT session, node_id, address, leaving FROM writers
    WHERE dead_since IS NULL AND lane = 0 AND kind = 'broker' ORDER BY node_id, session
"""
SET_LEAVING: Final = """
    UPDATE writers SET leaving = ? WHERE session = ? AND kind = 'broker' AND dead_since IS NULL RETURNING session
"""
OWNERS: Final = "SELECT topic_id, partition, owner, epoch FROM partitions ORDER BY topic_id, partition"
OWNERS_SINCE: Final = "SELECT topic_id, partition, owner, epoch FROM partitions WHERE moved > ?"
PARTITIONS: Final = "SELECT coalesce(sum(partitions), 0) FROM topics WHERE deleted_at IS NULL"
COUNTS: Final = "SELECT owner, count(*) FROM partitions WHERE owner IS NOT NULL GROUP BY owner"
SHARDS: Final = "SELECT shard, owner, epoch FROM coordinators ORDER BY shard"
LIVING: Final = "SELECT session FROM writers WHERE dead_since IS NULL AND kind = 'broker' AND lane = 0"
ORPHANS: Final = f"""
    SELECT topic_id, partition FROM partitions WHERE owner IS NULL OR owner NOT IN ({LIVING})
    ORDER BY topic_id, partition
"""  # noqa: S608  # our own text
HAND_OVER: Final = f"""
    UPDATE partitions SET owner = ?, epoch = epoch + 1, moved = ({VERSION})
    WHERE topic_id = ? AND partition = ? AND owner = ? AND epoch = ? RETURNING epoch
"""  # noqa: S608  # our own text
ADOPT: Final = f"""
    UPDATE partitions SET owner = ?, epoch = epoch + 1, moved = ({VERSION})
    WHERE topic_id = ? AND partition = ? AND (owner IS NULL OR owner NOT IN ({LIVING})) RETURNING epoch
"""  # noqa: S608  # our own text
HAND_OVER_SHARD: Final = """
    UPDATE coordinators SET owner = ?, epoch = epoch + 1 WHERE shard = ? AND owner = ? AND epoch = ? RETURNING epoch
"""
ADOPT_SHARD: Final = f"""
    UPDATE coordinators SET owner = ?, epoch = epoch + 1
    WHERE shard = ? AND (owner IS NULL OR owner NOT IN ({LIVING})) RETURNING epoch
"""  # noqa: S608  # our own text
"""The comparison runs under the row's lock: a broker that has been given the row since keeps it."""


class LiveBroker(NamedTuple):
    """A living broker. A broker that is leaving keeps nothing and gets nothing."""

    session: Session
    node_id: int
    address: str
    """JSON: the address of each of its interfaces."""
    leaving: bool


class Ownership(NamedTuple):
    session: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Topology:
    version: int = 0
    members: Mapping[str, LiveBroker] = field(default_factory=dict)
    """By session, ordered by node id."""
    partitions: Mapping[TopicPartition, Ownership] = field(default_factory=dict)
    shards: Mapping[int, Ownership] = field(default_factory=dict)

    def member(self, session: str | None) -> LiveBroker | None:
        return self.members.get(session) if session is not None else None


def bump_version(tx: CatalogTransaction) -> int:
    """Raise the version and return it. Call this before reading anything that decides what is changed."""
    version: int = tx.rows(BUMP_VERSION)[0][0]
    return version


def version(tx: CatalogTransaction) -> int:
    found: int = tx.rows(VERSION)[0][0]
    return found


def read(tx: CatalogTransaction, known: Topology | None = None) -> Topology:
    """The version is read first, so everything read after it is of that version, or of a newer one that will
    be read again. Only those partitions are read that have moved since `known`."""
    at = version(tx)
    found: dict[str, LiveBroker] = {each.session: each for each in members(tx)}
    return Topology(at, found, _owners_since(tx, known, at), shards(tx))


def members(tx: CatalogTransaction) -> list[LiveBroker]:
    return [LiveBroker(Session(row[0]), row[1], row[2], bool(row[3])) for row in tx.rows(MEMBERS)]


def owners(tx: CatalogTransaction) -> dict[TopicPartition, Ownership]:
    return _owners(tx.rows(OWNERS))


def _owners_since(tx: CatalogTransaction, known: Topology | None, at: int) -> dict[TopicPartition, Ownership]:
    """Deleted rows have not moved. If the number of partitions does not match, all of them are read."""
    if known is None or known.version > at:
        return owners(tx)
    found = {**known.partitions, **_owners(tx.rows(OWNERS_SINCE, (known.version,)))}
    return found if len(found) == tx.rows(PARTITIONS)[0][0] else owners(tx)


def _owners(rows: Iterable[Row]) -> dict[TopicPartition, Ownership]:
    return {
        TopicPartition(TopicId(bytes(topic_id)), number): Ownership(owner, epoch)
        for topic_id, number, owner, epoch in rows
    }


def shards(tx: CatalogTransaction) -> dict[int, Ownership]:
    return {shard: Ownership(owner, epoch) for shard, owner, epoch in tx.rows(SHARDS)}


def receivers(tx: CatalogTransaction) -> list[str]:
    """Brokers that may be given partitions and shards. If all brokers are leaving, all of them may."""
    found = members(tx)
    return [each.session for each in found if not each.leaving] or [each.session for each in found]


def set_leaving(tx: CatalogTransaction, session: str, *, leaving: bool) -> bool:
    """Returns whether the broker exists. Its row is locked before the version's, the order in which commits
    lock them."""
    found = bool(tx.rows(SET_LEAVING, (int(leaving), session)))
    bump_version(tx)
    return found


def place_new(tx: CatalogTransaction, topic_id: TopicId, numbers: range) -> list[str | None]:
    """Choose an owner for each new partition of a topic."""
    brokers = receivers(tx)
    if len(brokers) == 1:
        return [brokers[0]] * len(numbers)
    topic_partitions = [TopicPartition(topic_id, number) for number in numbers]
    placed = spread(topic_partitions, brokers, dict(tx.rows(COUNTS)), family=topic_of)
    return [placed.get(topic_partition) for topic_partition in topic_partitions]


def adopt(tx: CatalogTransaction) -> int:
    """Give partitions and shards without a living owner to living brokers. Returns how many."""
    brokers = receivers(tx)
    topic_partitions = [TopicPartition(TopicId(bytes(row[0])), row[1]) for row in tx.rows(ORPHANS)]
    taken = (
        spread(topic_partitions, brokers, dict(tx.rows(COUNTS)), family=topic_of) if topic_partitions else {}
    )
    adopted = sum(
        map(len, tx.each(ADOPT, [(owner, *topic_partition) for topic_partition, owner in taken.items()]))
    )
    known = shards(tx)
    living = {each.session for each in members(tx)}
    loads = {broker: sum(1 for each in known.values() if each.session == broker) for broker in brokers}
    lost = [shard for shard, each in known.items() if each.session not in living]
    kept = spread(lost, brokers, loads)
    return adopted + sum(map(len, tx.each(ADOPT_SHARD, [(owner, shard) for shard, owner in kept.items()])))


def hand_over(
    tx: CatalogTransaction, session: str, handovers: Mapping[TopicPartition, tuple[int, str]]
) -> int:
    """Hand over partitions, each given with the epoch under which it is owned and its new owner. Returns how
    many changed owner."""
    living = {each.session for each in members(tx)}
    wanted = [
        (to, *topic_partition, session, epoch)
        for topic_partition, (epoch, to) in sorted(handovers.items())
        if to in living
    ]
    return sum(map(len, tx.each(HAND_OVER, wanted)))


def hand_over_shards(tx: CatalogTransaction, session: str, handovers: Mapping[int, tuple[int, str]]) -> int:
    living = {each.session for each in members(tx)}
    wanted = [(to, shard, session, epoch) for shard, (epoch, to) in sorted(handovers.items()) if to in living]
    return sum(map(len, tx.each(HAND_OVER_SHARD, wanted)))


def topic_of(topic_partition: TopicPartition) -> TopicId:
    return topic_partition.topic_id
