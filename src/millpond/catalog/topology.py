"""The topology of the cluster: which brokers are live, and which broker owns which partitions and coordinator
shards. It has a version.

Every change of topics, brokers or owners raises the version in the same transaction. This also serialises
such changes: the version's row stays locked until they commit, so no two of them start from the same state.
Each partition stores the version at which it got its owner (`moved`), so that a broker that knows a hundred
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
LIVE: Final = "SELECT session FROM writers WHERE dead_since IS NULL AND kind = 'broker' AND lane = 0"
"""The sessions of live brokers, as a subquery."""
ORPHANS: Final = f"""
    SELECT topic_id, partition FROM partitions WHERE owner IS NULL OR owner NOT IN ({LIVE})
    ORDER BY topic_id, partition
"""  # noqa: S608  # no user input
HAND_OVER: Final = f"""
    UPDATE partitions SET owner = ?, epoch = epoch + 1, moved = ({VERSION})
    WHERE topic_id = ? AND partition = ? AND owner = ? AND epoch = ? RETURNING epoch
"""  # noqa: S608  # no user input
ADOPT: Final = f"""
    UPDATE partitions SET owner = ?, epoch = epoch + 1, moved = ({VERSION})
    WHERE topic_id = ? AND partition = ? AND (owner IS NULL OR owner NOT IN ({LIVE})) RETURNING epoch
"""  # noqa: S608  # no user input
HAND_OVER_SHARD: Final = """
    UPDATE coordinators SET owner = ?, epoch = epoch + 1 WHERE shard = ? AND owner = ? AND epoch = ? RETURNING epoch
"""
ADOPT_SHARD: Final = f"""
    UPDATE coordinators SET owner = ?, epoch = epoch + 1
    WHERE shard = ? AND (owner IS NULL OR owner NOT IN ({LIVE})) RETURNING epoch
"""  # noqa: S608  # no user input
"""For these four statements: `WHERE` compares the owner under the row's lock, so a row that has another owner by then
does not change."""


class LiveBroker(NamedTuple):
    """A broker whose session is not declared dead. While it is `leaving`, it hands over what it owns and
    receives nothing."""

    session: Session
    node_id: int
    address: str
    """JSON: the address of each of its interfaces."""
    leaving: bool


class Ownership(NamedTuple):
    """The owner of a partition or coordinator shard, None if it has none, and its epoch."""

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
    """Raise the version and return it. Call this before reading anything on which the change depends."""
    version: int = tx.rows(BUMP_VERSION)[0][0]
    return version


def version(tx: CatalogTransaction) -> int:
    found: int = tx.rows(VERSION)[0][0]
    return found


def read(tx: CatalogTransaction, known: Topology | None = None) -> Topology:
    """Read the topology; of the partitions, only those that have moved since `known`. The version is read first:
    what is read after it may be newer, and is then read again with the next version."""
    at = version(tx)
    found: dict[str, LiveBroker] = {each.session: each for each in members(tx)}
    return Topology(at, found, _owners_since(tx, known, at), shards(tx))


def members(tx: CatalogTransaction) -> list[LiveBroker]:
    return [LiveBroker(Session(row[0]), row[1], row[2], bool(row[3])) for row in tx.rows(MEMBERS)]


def owners(tx: CatalogTransaction) -> dict[TopicPartition, Ownership]:
    return _owners(tx.rows(OWNERS))


def _owners_since(tx: CatalogTransaction, known: Topology | None, at: int) -> dict[TopicPartition, Ownership]:
    """Partitions that were deleted are not among those that moved. If the number of partitions does not match
    that of the topics, all owners are read again."""
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
    """Brokers that may receive partitions and shards: those that are not leaving, or all if all are leaving."""
    found = members(tx)
    return [each.session for each in found if not each.leaving] or [each.session for each in found]


def set_leaving(tx: CatalogTransaction, session: str, *, leaving: bool) -> bool:
    """Returns whether there is a live broker with this session. Its row is locked before that of the version,
    because commits lock them in this order."""
    found = bool(tx.rows(SET_LEAVING, (int(leaving), session)))
    bump_version(tx)
    return found


def place_new(tx: CatalogTransaction, topic_id: TopicId, numbers: range) -> list[str | None]:
    """Choose an owner for each new partition of a topic; None if there is no live broker."""
    brokers = receivers(tx)
    if len(brokers) == 1:
        return [brokers[0]] * len(numbers)
    topic_partitions = [TopicPartition(topic_id, number) for number in numbers]
    new_owners = spread(topic_partitions, brokers, dict(tx.rows(COUNTS)), family=topic_of)
    return [new_owners.get(topic_partition) for topic_partition in topic_partitions]


def adopt(tx: CatalogTransaction) -> int:
    """Assign partitions and shards without a live owner to live brokers. Returns how many were assigned."""
    brokers = receivers(tx)
    topic_partitions = [TopicPartition(TopicId(bytes(row[0])), row[1]) for row in tx.rows(ORPHANS)]
    partition_owners = (
        spread(topic_partitions, brokers, dict(tx.rows(COUNTS)), family=topic_of) if topic_partitions else {}
    )
    adopted = sum(
        map(
            len,
            tx.each(
                ADOPT, [(owner, *topic_partition) for topic_partition, owner in partition_owners.items()]
            ),
        )
    )
    known = shards(tx)
    live = {each.session for each in members(tx)}
    shard_counts = {broker: sum(1 for each in known.values() if each.session == broker) for broker in brokers}
    orphaned_shards = [shard for shard, each in known.items() if each.session not in live]
    shard_owners = spread(orphaned_shards, brokers, shard_counts)
    return adopted + sum(
        map(len, tx.each(ADOPT_SHARD, [(owner, shard) for shard, owner in shard_owners.items()]))
    )


def hand_over(
    tx: CatalogTransaction, session: str, handovers: Mapping[TopicPartition, tuple[int, str]]
) -> int:
    """Hand over partitions of this session. `handovers` has the current epoch and the new owner of each. Returns
    how many changed owner."""
    live = {each.session for each in members(tx)}
    updates = [
        (new_owner, *topic_partition, session, epoch)
        for topic_partition, (epoch, new_owner) in sorted(handovers.items())
        if new_owner in live
    ]
    return sum(map(len, tx.each(HAND_OVER, updates)))


def hand_over_shards(tx: CatalogTransaction, session: str, handovers: Mapping[int, tuple[int, str]]) -> int:
    """The same for coordinator shards."""
    live = {each.session for each in members(tx)}
    updates = [
        (new_owner, shard, session, epoch)
        for shard, (epoch, new_owner) in sorted(handovers.items())
        if new_owner in live
    ]
    return sum(map(len, tx.each(HAND_OVER_SHARD, updates)))


def topic_of(topic_partition: TopicPartition) -> TopicId:
    return topic_partition.topic_id
