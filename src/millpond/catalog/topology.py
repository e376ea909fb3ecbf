"""What the cluster looks like: which brokers there are, and who owns what. Its version tells whether that has changed.

Whatever changes topics, brokers or owners moves the version in the same transaction. That also puts such changes in a
row: the version's row is locked until they commit, so no two of them are made from the same view. Each partition keeps
the version at which it got its owner (`moved`), so that of a hundred thousand only those are read that are news.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from millpond.catalog.database import Row, Transaction
from millpond.model.ids import Session, TopicId, TopicPartition
from millpond.model.placement import spread

MOVE: Final = "UPDATE counters SET next = next + 1 WHERE name = 'topology' RETURNING next"
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
GIVE: Final = f"""
    UPDATE partitions SET owner = ?, epoch = epoch + 1, moved = ({VERSION})
    WHERE topic_id = ? AND partition = ? AND owner = ? AND epoch = ? RETURNING epoch
"""  # noqa: S608  # our own text
TAKE: Final = f"""
    UPDATE partitions SET owner = ?, epoch = epoch + 1, moved = ({VERSION})
    WHERE topic_id = ? AND partition = ? AND (owner IS NULL OR owner NOT IN ({LIVING})) RETURNING epoch
"""  # noqa: S608  # our own text
GIVE_SHARD: Final = """
    UPDATE coordinators SET owner = ?, epoch = epoch + 1 WHERE shard = ? AND owner = ? AND epoch = ? RETURNING epoch
"""
TAKE_SHARD: Final = f"""
    UPDATE coordinators SET owner = ?, epoch = epoch + 1
    WHERE shard = ? AND (owner IS NULL OR owner NOT IN ({LIVING})) RETURNING epoch
"""  # noqa: S608  # our own text
"""The comparison is made under the row's lock: whoever was given the row meanwhile keeps it."""


class Member(NamedTuple):
    """A broker that lives. One that is leaving keeps nothing and gets nothing."""

    session: Session
    node_id: int
    address: str
    """JSON: where each of its faces is reached."""
    leaving: bool


class Owner(NamedTuple):
    session: str | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Topology:
    version: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    """By session, in the order of their numbers."""
    partitions: Mapping[TopicPartition, Owner] = field(default_factory=dict)
    shards: Mapping[int, Owner] = field(default_factory=dict)

    def member(self, session: str | None) -> Member | None:
        return self.members.get(session) if session is not None else None


def move(tx: Transaction) -> int:
    """The next version. To be called before anything else is read that decides what is changed."""
    version: int = tx.rows(MOVE)[0][0]
    return version


def version(tx: Transaction) -> int:
    found: int = tx.rows(VERSION)[0][0]
    return found


def read(tx: Transaction, known: Topology | None = None) -> Topology:
    """The version is read first: what is read after it is that version, or a newer one that will be read again. Of the
    partitions only those are read that have moved since `known`."""
    at = version(tx)
    found: dict[str, Member] = {each.session: each for each in members(tx)}
    return Topology(at, found, _owners_since(tx, known, at), shards(tx))


def members(tx: Transaction) -> list[Member]:
    return [Member(Session(row[0]), row[1], row[2], bool(row[3])) for row in tx.rows(MEMBERS)]


def owners(tx: Transaction) -> dict[TopicPartition, Owner]:
    return _owners(tx.rows(OWNERS))


def _owners_since(tx: Transaction, known: Topology | None, at: int) -> dict[TopicPartition, Owner]:
    """Rows that are gone have not moved: if there are now fewer partitions than there were, all are read."""
    if known is None or known.version > at:
        return owners(tx)
    found = {**known.partitions, **_owners(tx.rows(OWNERS_SINCE, (known.version,)))}
    return found if len(found) == tx.rows(PARTITIONS)[0][0] else owners(tx)


def _owners(rows: Iterable[Row]) -> dict[TopicPartition, Owner]:
    return {
        TopicPartition(TopicId(bytes(topic_id)), number): Owner(owner, epoch)
        for topic_id, number, owner, epoch in rows
    }


def shards(tx: Transaction) -> dict[int, Owner]:
    return {shard: Owner(owner, epoch) for shard, owner, epoch in tx.rows(SHARDS)}


def receivers(tx: Transaction) -> list[str]:
    """Brokers that may be given something; if all are leaving, they have to do."""
    found = members(tx)
    return [each.session for each in found if not each.leaving] or [each.session for each in found]


def set_leaving(tx: Transaction, session: str, *, leaving: bool) -> bool:
    """Whether there is such a broker. Its row comes before the version, as whoever commits locks them."""
    found = bool(tx.rows(SET_LEAVING, (int(leaving), session)))
    move(tx)
    return found


def place_new(tx: Transaction, topic_id: TopicId, numbers: range) -> list[str | None]:
    """An owner for each new partition of a topic."""
    brokers = receivers(tx)
    if len(brokers) == 1:
        return [brokers[0]] * len(numbers)
    wheres = [TopicPartition(topic_id, number) for number in numbers]
    placed = spread(wheres, brokers, dict(tx.rows(COUNTS)), family=topic_of)
    return [placed.get(where) for where in wheres]


def adopt(tx: Transaction) -> int:
    """Give away what nobody who lives owns, to those who live. How many partitions and shards that were."""
    brokers = receivers(tx)
    wheres = [TopicPartition(TopicId(bytes(row[0])), row[1]) for row in tx.rows(ORPHANS)]
    taken = spread(wheres, brokers, dict(tx.rows(COUNTS)), family=topic_of) if wheres else {}
    adopted = sum(map(len, tx.each(TAKE, [(owner, *where) for where, owner in taken.items()])))
    known = shards(tx)
    living = {each.session for each in members(tx)}
    loads = {broker: sum(1 for each in known.values() if each.session == broker) for broker in brokers}
    lost = [shard for shard, each in known.items() if each.session not in living]
    kept = spread(lost, brokers, loads)
    return adopted + sum(map(len, tx.each(TAKE_SHARD, [(owner, shard) for shard, owner in kept.items()])))


def give(tx: Transaction, session: str, gifts: Mapping[TopicPartition, tuple[int, str]]) -> int:
    """Hand partitions over: each with the epoch under which it is owned and who gets it. How many were."""
    living = {each.session for each in members(tx)}
    wanted = [(to, *where, session, epoch) for where, (epoch, to) in sorted(gifts.items()) if to in living]
    return sum(map(len, tx.each(GIVE, wanted)))


def give_shards(tx: Transaction, session: str, gifts: Mapping[int, tuple[int, str]]) -> int:
    living = {each.session for each in members(tx)}
    wanted = [(to, shard, session, epoch) for shard, (epoch, to) in sorted(gifts.items()) if to in living]
    return sum(map(len, tx.each(GIVE_SHARD, wanted)))


def topic_of(where: TopicPartition) -> TopicId:
    return where.topic_id
