"""Subscriptions, and for each partition what they are done with.

A dispatcher takes its partition's state with `take`, which raises the epoch in the row; whatever is saved later names
that epoch, so that a former dispatcher's `save` changes nothing. All that is saved is absolute: saving it again, when
the answer to a COMMIT was lost, does no harm. `member` is empty except for multicast, where each consumer has its own.
"""

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, NewType

from millpond.catalog import partitions
from millpond.catalog.database import Row, Transaction
from millpond.model.errors import NotOwner, SubscriptionExists, UnknownSubscription
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.subscriptions import SubscriptionConfig, config_from

SubscriptionId = NewType("SubscriptionId", bytes)
EVERYBODY: Final = ""
"""The member under whose name the consumers of a subscription share their state."""
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
ALL: Final = f"{COLUMNS} ORDER BY topic_id, name"
LOCK: Final = "UPDATE subscriptions SET version = version WHERE id = ? RETURNING version"
ALTER: Final = "UPDATE subscriptions SET config = ?, version = version + 1 WHERE id = ?"
RENEW: Final = "UPDATE subscriptions SET version = version + 1 WHERE id = ?"
DELETE: Final = "DELETE FROM subscriptions WHERE id = ?"
STATE_TABLES: Final = (
    *("subscription_state", "subscription_chunks", "subscription_retries", "redrives", "exclusive_consumers"),
)
"""Not `dead_letters`: what waits there is on its way to its topic, whatever becomes of the subscription."""
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
    SELECT message_offset, attempts, not_before FROM subscription_retries
    WHERE subscription_id = ? AND member = ? AND partition = ?
"""
MOVE: Final = """
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
      (subscription_id, member, partition, message_offset, topic_id, attempts, not_before)
    VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (subscription_id, member, partition, message_offset)
    DO UPDATE SET attempts = excluded.attempts, not_before = excluded.not_before
"""
DROP_RETRY: Final = """
    DELETE FROM subscription_retries
    WHERE subscription_id = ? AND member = ? AND partition = ? AND message_offset = ?
"""
BURY: Final = """
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
UNEARTH: Final = """
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
class Subscription:
    id: SubscriptionId
    topic_id: TopicId
    name: str
    config: SubscriptionConfig
    version: int
    """Grows with whatever makes dispatchers begin anew."""
    created_at: int


class Standing(NamedTuple):
    """Whose state it is: (subscription, member, partition)."""

    subscription_id: SubscriptionId
    member: str
    partition: int


@dataclass(frozen=True, slots=True)
class Loaded:
    epoch: int
    floor: int
    chunks: Mapping[int, bytes]
    retries: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    standing: Standing
    offset: int
    target: str
    """The topic it goes to."""
    dead_at: int
    record: bytes
    """A record batch of this one message, as it will lie there."""


@dataclass(frozen=True, slots=True)
class Save:
    standing: Standing
    topic_id: TopicId
    epoch: int
    floor: int
    chunks: Mapping[int, bytes]
    removed_chunks: Sequence[int]
    retries: Mapping[int, tuple[int, int]]
    removed_retries: Sequence[int]
    dead: Sequence[DeadLetter]


def create(
    tx: Transaction,
    topic_id: TopicId,
    name: str,
    config: SubscriptionConfig,
    floors: Mapping[int, int],
    *,
    topic: str,
    now_ms: int,
) -> Subscription:
    """`floors` say where each partition begins; a partition that is added later begins at its start."""
    created = Subscription(SubscriptionId(uuid.uuid4().bytes), topic_id, name, config, 1, now_ms)
    row = (created.id, topic_id, name, json.dumps(config.to_json()), now_ms)
    if not tx.rows(INSERT, row):
        raise SubscriptionExists(topic=topic, subscription=name)
    tx.each(
        INSERT_STATE,
        [(created.id, EVERYBODY, partition, topic_id, floor) for partition, floor in sorted(floors.items())],
    )
    return created


def find(tx: Transaction, topic_id: TopicId, name: str, *, topic: str) -> Subscription:
    found = tx.rows(BY_NAME, (topic_id, name))
    if not found:
        raise UnknownSubscription(topic=topic, subscription=name)
    return _subscription(found[0])


def of_topic(tx: Transaction, topic_id: TopicId) -> list[Subscription]:
    return [_subscription(row) for row in tx.rows(OF_TOPIC, (topic_id,))]


def all_subscriptions(tx: Transaction) -> list[Subscription]:
    return [_subscription(row) for row in tx.rows(ALL)]


def alter(tx: Transaction, subscription: Subscription, config: SubscriptionConfig) -> None:
    lock(tx, subscription)
    tx.rows(ALTER, (json.dumps(config.to_json()), subscription.id))


def delete(tx: Transaction, subscription: Subscription) -> None:
    lock(tx, subscription)
    for table in STATE_TABLES:
        tx.rows(f"DELETE FROM {table} WHERE subscription_id = ?", (subscription.id,))  # noqa: S608  # our own table names
    tx.rows(DELETE, (subscription.id,))


def take(tx: Transaction, subscription: Subscription, standing: Standing, *, owner: str, topic: str) -> int:
    """Begin to dispatch: the epoch to save with. Only the owner of the partition may; whoever did so before can save
    nothing any more, so that what `load` finds afterwards stays."""
    where = TopicPartition(subscription.topic_id, standing.partition)
    if partitions.read(tx, where).owner != owner:
        raise NotOwner
    if not tx.rows(BY_ID, (subscription.id,)):
        raise UnknownSubscription(topic=topic, subscription=subscription.name)
    begin = tx.rows(FLOOR, (subscription.id, standing.partition))
    taken = tx.rows(TAKE, (*standing, subscription.topic_id, begin[0][0] if begin else 0))
    epoch: int = taken[0][0]
    return epoch


def load(tx: Transaction, standing: Standing) -> Loaded | None:
    """What the partition's consumers are done with. The epoch tells whether it is as it was taken; None if it is
    deleted."""
    found = tx.rows(STATE, standing)
    if not found:
        return None
    chunks = {row[0]: FULL_CHUNK if row[1] is None else bytes(row[1]) for row in tx.rows(CHUNKS, standing)}
    retries = {row[0]: (row[1], row[2]) for row in tx.rows(RETRIES, standing)}
    return Loaded(found[0][0], found[0][1], chunks, retries)


def save(tx: Transaction, saves: Sequence[Save]) -> list[bool]:
    """Whether each was still the one that may: those that were not have changed nothing."""
    ordered = sorted(range(len(saves)), key=lambda index: saves[index].standing)
    moved = tx.each(
        MOVE, [(saves[index].floor, *saves[index].standing, saves[index].epoch) for index in ordered]
    )
    held = [False] * len(saves)
    for index, rows in zip(ordered, moved, strict=True):
        held[index] = bool(rows)
    _save_details(tx, [each for each, ok in zip(saves, held, strict=True) if ok])
    return held


def reset(
    tx: Transaction, subscription: Subscription, floors: Mapping[int, int], members: Iterable[str]
) -> None:
    """Begin anew at these floors."""
    lock(tx, subscription)
    for member in sorted({EVERYBODY, *members}):
        for partition, floor in sorted(floors.items()):
            standing = Standing(subscription.id, member, partition)
            tx.rows(RESET, (*standing, subscription.topic_id, floor))
            for statement in CLEAR:
                tx.rows(statement, standing)
    tx.rows(RENEW, (subscription.id,))


def floors(tx: Transaction, subscription_id: SubscriptionId) -> dict[tuple[str, int], int]:
    """Of every member and partition, as they are stored."""
    return {(row[0], row[1]): row[3] for row in tx.rows(FLOORS, (subscription_id,))}


def epochs(tx: Transaction, subscription_id: SubscriptionId, member: str) -> dict[int, int]:
    """Of each partition, under which number it was last taken or reset."""
    return {row[1]: row[2] for row in tx.rows(FLOORS, (subscription_id,)) if row[0] == member}


def settled_above_floors(tx: Transaction, subscription_id: SubscriptionId) -> dict[tuple[str, int], int]:
    """How many offsets above the floors are settled, as they are stored."""
    counts: dict[tuple[str, int], int] = {}
    below = {(row[0], row[1]): row[3] for row in tx.rows(FLOORS, (subscription_id,))}
    for member, partition, number, bits in tx.rows(ALL_CHUNKS, (subscription_id,)):
        floor = max(below.get((member, partition), 0) - number * CHUNK_OFFSETS, 0)
        settled = int.from_bytes(FULL_CHUNK if bits is None else bytes(bits), "little") >> floor
        counts[member, partition] = counts.get((member, partition), 0) + settled.bit_count()
    return counts


def dead_letters(tx: Transaction, limit: int, after: DeadLetter | None = None) -> list[DeadLetter]:
    """Those that wait to be written to their topics; a partition's in the order of their messages."""
    place = (*after.standing, after.offset) if after is not None else BEFORE_ALL_LETTERS
    return [
        DeadLetter(
            Standing(SubscriptionId(bytes(row[0])), row[1], row[2]), row[3], row[4], row[5], bytes(row[6])
        )
        for row in tx.rows(DEAD, (*place, limit))
    ]


def dead_letters_waiting(tx: Transaction, subscription_id: SubscriptionId) -> int:
    count: int = tx.rows(DEAD_WAITING, (subscription_id,))[0][0]
    return count


def remove_dead_letters(tx: Transaction, letters: Sequence[DeadLetter]) -> int:
    """How many of them were still there."""
    removed = tx.each(UNEARTH, [(*letter.standing, letter.offset) for letter in letters])
    return sum(len(rows) for rows in removed)


def redriven(tx: Transaction, subscription_id: SubscriptionId, topic_id: TopicId) -> dict[int, int]:
    """Up to where dead letters have been sent back, for each partition of this topic of theirs."""
    return {row[0]: row[1] for row in tx.rows(REDRIVEN, (subscription_id, topic_id))}


def set_redriven(
    tx: Transaction, subscription_id: SubscriptionId, where: TopicPartition, before: int, after: int
) -> bool:
    """Whether it was still as it was `before`: otherwise somebody else has sent these letters back."""
    return bool(tx.rows(REDRIVE, (subscription_id, *where, after, before)))


def _save_details(tx: Transaction, saves: Sequence[Save]) -> None:
    chunks = [
        (*save.standing, number, save.topic_id, None if bits == FULL_CHUNK else bits)
        for save in saves
        for number, bits in save.chunks.items()
    ]
    retries = [
        (*save.standing, offset, save.topic_id, *retry)
        for save in saves
        for offset, retry in save.retries.items()
    ]
    dead = [
        (*letter.standing, letter.offset, letter.target, letter.dead_at, letter.record)
        for save in saves
        for letter in save.dead
    ]
    dropped_chunks = [(*save.standing, number) for save in saves for number in save.removed_chunks]
    dropped_retries = [(*save.standing, offset) for save in saves for offset in save.removed_retries]
    for statement, rows in (
        (DROP_CHUNK, dropped_chunks),
        (PUT_CHUNK, chunks),
        (DROP_RETRY, dropped_retries),
        (PUT_RETRY, retries),
        (BURY, dead),
    ):
        if rows:
            tx.each(statement, rows)


def lock(tx: Transaction, subscription: Subscription) -> None:
    if not tx.rows(LOCK, (subscription.id,)):
        raise UnknownSubscription(topic=subscription.topic_id.hex(), subscription=subscription.name)


def _subscription(row: Row) -> Subscription:
    subscription_id, topic_id, name, config, version, created_at = row
    return Subscription(
        SubscriptionId(bytes(subscription_id)),
        TopicId(bytes(topic_id)),
        name,
        config_from(json.loads(config)),
        version,
        created_at,
    )
