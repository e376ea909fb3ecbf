"""Subscriptions, and the messages that each has settled in each partition.

A dispatcher takes its partition's state with `take`, which raises the epoch in the row. Every later save names that
epoch, so a `save` by a former dispatcher changes nothing. All saved values are absolute: saving them again after a
lost COMMIT response does no harm. `member` is empty except for multicast, where each consumer has its own state.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NewType

from millpond.catalog import partitions
from millpond.catalog.database import CatalogTransaction, Row
from millpond.model.errors import NotOwner, SubscriptionExists, UnknownSubscription
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.subscriptions import SubscriptionConfig, config_from

SubscriptionId = NewType("SubscriptionId", bytes)
SHARED_MEMBER: Final = ""
"""The member name of the state that all consumers of a subscription share."""
SHARE_GROUP: Final = "share_group"
"""The field of a stored config that names the share group."""
CHUNK_OFFSETS: Final = 8192
FULL_CHUNK: Final = b"\xff" * (CHUNK_OFFSETS // 8)

BEFORE_ALL_LETTERS: Final = (b"", "", -1, -1)

INSERT: Final = """
    INSERT INTO subscriptions (id, topic_id, name, config, version, created_at) VALUES (?, ?, ?, ?, 1, ?)
    ON CONFLICT (topic_id, name) DO NOTHING RETURNING id
"""
COLUMNS: Final = "SELECT id, topic_id, name, config, version, created_at FROM subscriptions"
BY_NAME: Final = f"{COLUMNS} WHERE topic_id = ? AND name = ?"
BY_ID: Final = f"{COLUMNS} WHERE id = ?"
OF_TOPIC: Final = f"{COLUMNS} WHERE topic_id = ? ORDER BY name"
OF_NAME: Final = f"{COLUMNS} WHERE name = ? ORDER BY topic_id"
ALL: Final = f"{COLUMNS} ORDER BY topic_id, name"
LOCK: Final = "UPDATE subscriptions SET version = version WHERE id = ? RETURNING version"
ALTER: Final = "UPDATE subscriptions SET config = ?, version = version + 1 WHERE id = ?"
RENEW: Final = "UPDATE subscriptions SET version = version + 1 WHERE id = ?"
DELETE: Final = "DELETE FROM subscriptions WHERE id = ?"
STATE_TABLES: Final = (
    *("subscription_state", "subscription_chunks", "subscription_retries", "redrives", "exclusive_consumers"),
)
"""Tables with state of a subscription. `dead_letters` is not among them: its rows are still to be written to
their topics, even if the subscription is deleted."""
INSERT_STATE: Final = """
    INSERT INTO subscription_state (subscription_id, member, partition, topic_id, epoch, floor)
    VALUES (?, ?, ?, ?, 0, ?)
"""
TAKE: Final = """
    INSERT INTO subscription_state (subscription_id, member, partition, topic_id, epoch, floor)
    VALUES (?, ?, ?, ?, 1, ?)
    ON CONFLICT (subscription_id, member, partition) DO UPDATE SET epoch = subscription_state.epoch + 1
    RETURNING epoch
"""
FLOOR: Final = """
    SELECT floor FROM subscription_state WHERE subscription_id = ? AND member = '' AND partition = ?
"""
FLOORS: Final = """
    SELECT member, partition, epoch, floor FROM subscription_state WHERE subscription_id = ?
    ORDER BY member, partition
"""
STATE: Final = """
    SELECT epoch, floor FROM subscription_state WHERE subscription_id = ? AND member = ? AND partition = ?
"""
CHUNKS: Final = """
    SELECT chunk, bits FROM subscription_chunks WHERE subscription_id = ? AND member = ? AND partition = ?
"""
ALL_CHUNKS: Final = """
    SELECT member, partition, chunk, bits FROM subscription_chunks WHERE subscription_id = ?
"""
RETRIES: Final = """
    SELECT message_offset, attempts, not_before, reasons FROM subscription_retries
    WHERE subscription_id = ? AND member = ? AND partition = ?
"""
FIRST_RETRIES: Final = """
    SELECT member, partition, message_offset, attempts, not_before, reasons FROM (
      SELECT member, partition, message_offset, attempts, not_before, reasons,
        row_number() OVER (PARTITION BY member, partition ORDER BY message_offset) AS position
      FROM subscription_retries WHERE subscription_id = ?) AS retries
    WHERE position <= ? ORDER BY member, partition, message_offset
"""
SET_FLOOR: Final = """
    UPDATE subscription_state SET floor = ?
    WHERE subscription_id = ? AND member = ? AND partition = ? AND epoch = ? RETURNING epoch
"""
PUT_CHUNK: Final = """
    INSERT INTO subscription_chunks (subscription_id, member, partition, chunk, topic_id, bits)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (subscription_id, member, partition, chunk) DO UPDATE SET bits = excluded.bits
"""
DROP_CHUNK: Final = """
    DELETE FROM subscription_chunks
    WHERE subscription_id = ? AND member = ? AND partition = ? AND chunk = ?
"""
PUT_RETRY: Final = """
    INSERT INTO subscription_retries
      (subscription_id, member, partition, message_offset, topic_id, attempts, not_before, reasons)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (subscription_id, member, partition, message_offset)
    DO UPDATE SET attempts = excluded.attempts, not_before = excluded.not_before, reasons = excluded.reasons
"""
DROP_RETRY: Final = """
    DELETE FROM subscription_retries
    WHERE subscription_id = ? AND member = ? AND partition = ? AND message_offset = ?
"""
INSERT_DEAD_LETTER: Final = """
    INSERT INTO dead_letters
      (subscription_id, member, partition, message_offset, target, dead_at, record)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (subscription_id, member, partition, message_offset) DO NOTHING
"""
DEAD: Final = """
    SELECT subscription_id, member, partition, message_offset, target, dead_at, record FROM dead_letters
    WHERE (subscription_id, member, partition, message_offset) > (?, ?, ?, ?)
    ORDER BY subscription_id, member, partition, message_offset LIMIT ?
"""
DEAD_WAITING: Final = "SELECT count(*) FROM dead_letters WHERE subscription_id = ?"
DELETE_DEAD_LETTER: Final = """
    DELETE FROM dead_letters WHERE subscription_id = ? AND member = ? AND partition = ? AND message_offset = ?
    RETURNING partition
"""
RESET: Final = """
    INSERT INTO subscription_state (subscription_id, member, partition, topic_id, epoch, floor)
    VALUES (?, ?, ?, ?, 1, ?)
    ON CONFLICT (subscription_id, member, partition)
    DO UPDATE SET epoch = subscription_state.epoch + 1, floor = excluded.floor
"""
CLEAR: Final = (
    "DELETE FROM subscription_chunks WHERE subscription_id = ? AND member = ? AND partition = ?",
    "DELETE FROM subscription_retries WHERE subscription_id = ? AND member = ? AND partition = ?",
)
REDRIVEN: Final = "SELECT partition, next_offset FROM redrives WHERE subscription_id = ? AND topic_id = ?"
REDRIVE: Final = """
    INSERT INTO redrives (subscription_id, topic_id, partition, next_offset) VALUES (?, ?, ?, ?)
    ON CONFLICT (subscription_id, topic_id, partition) DO UPDATE SET next_offset = excluded.next_offset
      WHERE redrives.next_offset = ? RETURNING next_offset
"""


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    id: SubscriptionId
    topic_id: TopicId
    name: str
    config: SubscriptionConfig
    version: int
    """Raised by every change that makes dispatchers start again."""
    created_at: int
    share_group: str = ""
    """The id of the share group whose messages in the topic these are; empty for a subscription of its own. Then the
    group's config decides, and `config` has only what it was created with."""
    read_committed: bool = True
    """Whether messages of open and aborted transactions are left out. Not stored; the share group decides."""


class StateKey(NamedTuple):
    """The key of a stored state: (subscription, member, partition)."""

    subscription_id: SubscriptionId
    member: str
    partition: int


StoredRetry = tuple[int, int, tuple[str, ...]]
"""Failed deliveries of a message, the time of the next one, and the reasons of the last failures, oldest first."""


@dataclass(frozen=True, slots=True)
class Loaded:
    epoch: int
    floor: int
    chunks: Mapping[int, bytes]
    retries: Mapping[int, StoredRetry]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    state_key: StateKey
    offset: int
    target: str
    """The topic that it is written to."""
    dead_at: int
    record: bytes
    """A record batch with this one message, in the form in which it is appended to the target."""


@dataclass(frozen=True, slots=True)
class StateSave:
    state_key: StateKey
    topic_id: TopicId
    epoch: int
    floor: int
    chunks: Mapping[int, bytes]
    removed_chunks: Sequence[int]
    retries: Mapping[int, StoredRetry]
    removed_retries: Sequence[int]
    dead: Sequence[DeadLetter]


def create(
    tx: CatalogTransaction,
    topic_id: TopicId,
    name: str,
    config: SubscriptionConfig,
    floors: Mapping[int, int],
    *,
    topic: str,
    now_ms: int,
    share_group: str = "",
) -> StoredSubscription:
    """`floors` are the offsets at which each partition begins. A partition that is added later begins at its
    start."""
    created = StoredSubscription(
        SubscriptionId(uuid.uuid4().bytes), topic_id, name, config, 1, now_ms, share_group
    )
    row = (created.id, topic_id, name, _stored_config(config, share_group), now_ms)
    if not tx.rows(INSERT, row):
        raise SubscriptionExists(topic=topic, subscription=name)
    tx.each(
        INSERT_STATE,
        [
            (created.id, SHARED_MEMBER, partition, topic_id, floor)
            for partition, floor in sorted(floors.items())
        ],
    )
    return created


def find(tx: CatalogTransaction, topic_id: TopicId, name: str, *, topic: str) -> StoredSubscription:
    found = tx.rows(BY_NAME, (topic_id, name))
    if not found:
        raise UnknownSubscription(topic=topic, subscription=name)
    return _subscription(found[0])


def of_topic(tx: CatalogTransaction, topic_id: TopicId) -> list[StoredSubscription]:
    return [_subscription(row) for row in tx.rows(OF_TOPIC, (topic_id,))]


def all_subscriptions(tx: CatalogTransaction) -> list[StoredSubscription]:
    return [_subscription(row) for row in tx.rows(ALL)]


def of_share_group(tx: CatalogTransaction, group_id: str, name: str) -> list[StoredSubscription]:
    """The subscriptions of a share group in all topics. `name` is the one that they have."""
    found = [_subscription(row) for row in tx.rows(OF_NAME, (name,))]
    return [each for each in found if each.share_group == group_id]


def alter(tx: CatalogTransaction, subscription: StoredSubscription, config: SubscriptionConfig) -> None:
    lock(tx, subscription)
    tx.rows(ALTER, (_stored_config(config, subscription.share_group), subscription.id))


def delete(tx: CatalogTransaction, subscription: StoredSubscription) -> None:
    lock(tx, subscription)
    for table in STATE_TABLES:
        tx.rows(f"DELETE FROM {table} WHERE subscription_id = ?", (subscription.id,))  # noqa: S608  # our own table names
    tx.rows(DELETE, (subscription.id,))


def take(
    tx: CatalogTransaction, subscription: StoredSubscription, state_key: StateKey, *, owner: str, topic: str
) -> int:
    """Start dispatching. Returns the epoch to save with. Only the owner of the partition may do so. The
    former dispatcher can no longer save, so the state that `load` returns afterwards stays valid."""
    topic_partition = TopicPartition(subscription.topic_id, state_key.partition)
    if partitions.read(tx, topic_partition).owner != owner:
        raise NotOwner
    if not tx.rows(BY_ID, (subscription.id,)):
        raise UnknownSubscription(topic=topic, subscription=subscription.name)
    begin = tx.rows(FLOOR, (subscription.id, state_key.partition))
    taken = tx.rows(TAKE, (*state_key, subscription.topic_id, begin[0][0] if begin else 0))
    epoch: int = taken[0][0]
    return epoch


def load(tx: CatalogTransaction, state_key: StateKey) -> Loaded | None:
    """The partition's settled offsets and retries; None if the state is deleted. The epoch shows whether
    another dispatcher has taken the state since."""
    found = tx.rows(STATE, state_key)
    if not found:
        return None
    chunks = {row[0]: FULL_CHUNK if row[1] is None else bytes(row[1]) for row in tx.rows(CHUNKS, state_key)}
    retries = {row[0]: _retry(*row[1:]) for row in tx.rows(RETRIES, state_key)}
    return Loaded(found[0][0], found[0][1], chunks, retries)


def save(tx: CatalogTransaction, saves: Sequence[StateSave]) -> list[bool]:
    """Returns for each save whether its epoch was still current. A save with an old epoch changes nothing."""
    ordered = sorted(range(len(saves)), key=lambda index: saves[index].state_key)
    moved = tx.each(
        SET_FLOOR, [(saves[index].floor, *saves[index].state_key, saves[index].epoch) for index in ordered]
    )
    held = [False] * len(saves)
    for index, rows in zip(ordered, moved, strict=True):
        held[index] = bool(rows)
    _save_details(tx, [each for each, ok in zip(saves, held, strict=True) if ok])
    return held


def reset(
    tx: CatalogTransaction,
    subscription: StoredSubscription,
    floors: Mapping[int, int],
    members: Iterable[str],
) -> None:
    """Start the subscription again at these floors."""
    lock(tx, subscription)
    for member in sorted({SHARED_MEMBER, *members}):
        for partition, floor in sorted(floors.items()):
            state_key = StateKey(subscription.id, member, partition)
            tx.rows(RESET, (*state_key, subscription.topic_id, floor))
            for statement in CLEAR:
                tx.rows(statement, state_key)
    tx.rows(RENEW, (subscription.id,))


def floors(tx: CatalogTransaction, subscription_id: SubscriptionId) -> dict[tuple[str, int], int]:
    """The stored floors, by (member, partition)."""
    return {(row[0], row[1]): row[3] for row in tx.rows(FLOORS, (subscription_id,))}


def epochs(tx: CatalogTransaction, subscription_id: SubscriptionId, member: str) -> dict[int, int]:
    """The epoch with which each partition was last taken or reset."""
    return {row[1]: row[2] for row in tx.rows(FLOORS, (subscription_id,)) if row[0] == member}


def settled_above_floors(
    tx: CatalogTransaction, subscription_id: SubscriptionId
) -> dict[tuple[str, int], int]:
    """How many offsets above the stored floors are settled, by (member, partition)."""
    counts: dict[tuple[str, int], int] = {}
    below = {(row[0], row[1]): row[3] for row in tx.rows(FLOORS, (subscription_id,))}
    for member, partition, number, bits in tx.rows(ALL_CHUNKS, (subscription_id,)):
        floor = max(below.get((member, partition), 0) - number * CHUNK_OFFSETS, 0)
        settled = int.from_bytes(FULL_CHUNK if bits is None else bytes(bits), "little") >> floor
        counts[member, partition] = counts.get((member, partition), 0) + settled.bit_count()
    return counts


def first_retries(
    tx: CatalogTransaction, subscription_id: SubscriptionId, count: int
) -> dict[tuple[str, int], dict[int, StoredRetry]]:
    """The stored retries of each (member, partition), by offset: the `count` lowest offsets."""
    found: dict[tuple[str, int], dict[int, StoredRetry]] = {}
    for member, partition, offset, *values in tx.rows(FIRST_RETRIES, (subscription_id, count)):
        found.setdefault((member, partition), {})[offset] = _retry(*values)
    return found


def dead_letters(tx: CatalogTransaction, limit: int, after: DeadLetter | None = None) -> list[DeadLetter]:
    """Dead letters that are still to be written to their topics. Those of a partition are in message order."""
    position = (*after.state_key, after.offset) if after is not None else BEFORE_ALL_LETTERS
    return [
        DeadLetter(
            StateKey(SubscriptionId(bytes(row[0])), row[1], row[2]), row[3], row[4], row[5], bytes(row[6])
        )
        for row in tx.rows(DEAD, (*position, limit))
    ]


def dead_letters_waiting(tx: CatalogTransaction, subscription_id: SubscriptionId) -> int:
    count: int = tx.rows(DEAD_WAITING, (subscription_id,))[0][0]
    return count


def remove_dead_letters(tx: CatalogTransaction, letters: Sequence[DeadLetter]) -> int:
    """Returns how many of them were still stored."""
    removed = tx.each(DELETE_DEAD_LETTER, [(*letter.state_key, letter.offset) for letter in letters])
    return sum(len(rows) for rows in removed)


def redriven(tx: CatalogTransaction, subscription_id: SubscriptionId, topic_id: TopicId) -> dict[int, int]:
    """The offset up to which dead letters have been redriven, for each partition of their topic."""
    return {row[0]: row[1] for row in tx.rows(REDRIVEN, (subscription_id, topic_id))}


def set_redriven(
    tx: CatalogTransaction,
    subscription_id: SubscriptionId,
    topic_partition: TopicPartition,
    before: int,
    after: int,
) -> bool:
    """Returns False if the offset is no longer `before`: another process has redriven these letters."""
    return bool(tx.rows(REDRIVE, (subscription_id, *topic_partition, after, before)))


def _save_details(tx: CatalogTransaction, saves: Sequence[StateSave]) -> None:
    chunks = [
        (*save.state_key, number, save.topic_id, None if bits == FULL_CHUNK else bits)
        for save in saves
        for number, bits in save.chunks.items()
    ]
    retries = [
        (*save.state_key, offset, save.topic_id, attempts, not_before, _reasons_text(reasons))
        for save in saves
        for offset, (attempts, not_before, reasons) in save.retries.items()
    ]
    dead = [
        (*letter.state_key, letter.offset, letter.target, letter.dead_at, letter.record)
        for save in saves
        for letter in save.dead
    ]
    dropped_chunks = [(*save.state_key, number) for save in saves for number in save.removed_chunks]
    dropped_retries = [(*save.state_key, offset) for save in saves for offset in save.removed_retries]
    for statement, rows in (
        (DROP_CHUNK, dropped_chunks),
        (PUT_CHUNK, chunks),
        (DROP_RETRY, dropped_retries),
        (PUT_RETRY, retries),
        (INSERT_DEAD_LETTER, dead),
    ):
        if rows:
            tx.each(statement, rows)


def lock(tx: CatalogTransaction, subscription: StoredSubscription) -> None:
    if not tx.rows(LOCK, (subscription.id,)):
        raise UnknownSubscription(topic=subscription.topic_id.hex(), subscription=subscription.name)


def _retry(attempts: int, not_before: int, reasons: str) -> StoredRetry:
    """Older brokers store no reasons."""
    return attempts, not_before, tuple(json.loads(reasons)) if reasons else ()


def _reasons_text(reasons: Sequence[str]) -> str:
    return json.dumps(reasons, ensure_ascii=False) if reasons else ""


def _stored_config(config: SubscriptionConfig, share_group: str) -> str:
    values = config.to_json()
    return json.dumps({**values, SHARE_GROUP: share_group} if share_group else values)


def _subscription(row: Row) -> StoredSubscription:
    subscription_id, topic_id, name, config, version, created_at = row
    values = json.loads(config)
    share_group = values.pop(SHARE_GROUP, "")
    return StoredSubscription(
        SubscriptionId(bytes(subscription_id)),
        TopicId(bytes(topic_id)),
        name,
        config_from(values),
        version,
        created_at,
        share_group,
    )
