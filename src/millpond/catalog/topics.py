"""Topics and their partition rows: create, describe, configure, grow, delete and create again.

A deleted topic keeps its row, without partitions, until its extents are gone. Its name is free immediately,
and the next topic of that name has another id.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from millpond.catalog import topology
from millpond.catalog.database import CatalogTransaction, Row
from millpond.model.config_changes import ConfigChanges, ConfigPlan, setting
from millpond.model.configs import check_configs, completed
from millpond.model.errors import InvalidPartitionCount, TopicExists, UnknownTopic
from millpond.model.ids import TopicId, check_new_topic_name, new_topic_id
from millpond.model.topics import Topic, TopicConfig, altered, check_partition_count

INSERT: Final = """
    INSERT INTO topics (id, name, partitions, config, created_at) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING RETURNING id
"""
INSERT_PARTITION: Final = f"""
    INSERT INTO partitions (topic_id, partition, owner, epoch, moved) VALUES (?, ?, ?, ?, ({topology.VERSION}))
"""  # noqa: S608  # our own text
COLUMNS: Final = "SELECT id, name, partitions, config, created_at FROM topics"
ALL: Final = f"{COLUMNS} WHERE deleted_at IS NULL ORDER BY name"
BY_NAME: Final = f"{COLUMNS} WHERE name = ? AND deleted_at IS NULL"
BY_ID: Final = f"{COLUMNS} WHERE id = ? AND deleted_at IS NULL"
LOCK: Final = """
    UPDATE topics SET name = name WHERE name = ? AND deleted_at IS NULL
    RETURNING id, name, partitions, config, created_at
"""
SET_CONFIG: Final = "UPDATE topics SET config = ? WHERE id = ?"
SET_PARTITIONS: Final = "UPDATE topics SET partitions = ? WHERE id = ?"
DELETE: Final = "UPDATE topics SET deleted_at = ? WHERE id = ?"
DELETE_PARTITIONS: Final = "DELETE FROM partitions WHERE topic_id = ?"
DELETED: Final = "SELECT id, partitions FROM topics WHERE deleted_at IS NOT NULL"
FORGET: Final = "DELETE FROM topics WHERE id = ? AND deleted_at IS NOT NULL"
NO_DEFAULTS: Final[Mapping[str, str]] = {}
TABLES_BY_TOPIC: Final = (
    "producers",
    "txn_partitions",
    "txn_offsets",
    "aborted_txns",
    "group_offsets",
    "compactions",
    "subscriptions",
    "subscription_state",
    "subscription_chunks",
    "subscription_retries",
    "redrives",
    "exclusive_consumers",
)


def create(
    tx: CatalogTransaction,
    name: str,
    partitions: int,
    overrides: Mapping[str, str],
    *,
    now_ms: int,
    owner: str | None = None,
) -> Topic:
    """The partitions go to `owner`, or are spread over the live brokers."""
    check_new_topic_name(name)
    check_partition_count(partitions)
    check_configs(overrides)
    topic = Topic(new_topic_id(), name, partitions, now_ms, completed(overrides))
    topology.bump_version(tx)
    if not tx.rows(INSERT, (topic.id, name, partitions, json.dumps(topic.overrides), now_ms)):
        raise TopicExists(topic=name)
    _insert_partitions(tx, topic.id, range(partitions), owner)
    return topic


def all_topics(tx: CatalogTransaction) -> list[Topic]:
    return [_topic(row) for row in tx.rows(ALL)]


def find(tx: CatalogTransaction, name: str) -> Topic:
    found = tx.rows(BY_NAME, (name,))
    if not found:
        raise UnknownTopic(topic=name)
    return _topic(found[0])


def config(tx: CatalogTransaction, topic_id: TopicId, broker_defaults: Mapping[str, str]) -> TopicConfig:
    """The topic's effective configs, given the defaults of a broker."""
    found = tx.rows(BY_ID, (topic_id,))
    if not found:
        raise UnknownTopic(topic=topic_id.hex())
    return replace(_topic(found[0]), broker_defaults=broker_defaults).config()


def alter_config(tx: CatalogTransaction, name: str, changes: ConfigChanges) -> Topic:
    """Set configs. None resets a config to its default."""
    return plan_config(tx, name, setting(changes))


def plan_config(
    tx: CatalogTransaction, name: str, plan: ConfigPlan, broker_defaults: Mapping[str, str] = NO_DEFAULTS
) -> Topic:
    """Change configs as `plan` says, given those that the topic has while its row is locked."""
    topology.bump_version(tx)
    topic = _lock(tx, name)
    overrides = altered(topic.overrides, plan, broker_defaults)
    tx.rows(SET_CONFIG, (json.dumps(overrides), topic.id))
    return Topic(topic.id, name, topic.partitions, topic.created_at, overrides)


def add_partitions(tx: CatalogTransaction, name: str, total: int, *, owner: str | None = None) -> Topic:
    check_partition_count(total)
    topology.bump_version(tx)
    topic = _lock(tx, name)
    if total <= topic.partitions:
        reason = f"it has {topic.partitions}, and partitions can only be added"
        raise InvalidPartitionCount(partitions=total, reason=reason)
    tx.rows(SET_PARTITIONS, (total, topic.id))
    _insert_partitions(tx, topic.id, range(topic.partitions, total), owner)
    return Topic(topic.id, name, total, topic.created_at, topic.overrides)


def delete(tx: CatalogTransaction, name: str, *, now_ms: int) -> Topic:
    """Removes the partition rows, which makes every later commit fail. `maintenance` removes the extents."""
    topology.bump_version(tx)
    topic = _lock(tx, name)
    tx.rows(DELETE_PARTITIONS, (topic.id,))
    tx.rows(DELETE, (now_ms, topic.id))
    for table in TABLES_BY_TOPIC:
        tx.rows(f"DELETE FROM {table} WHERE topic_id = ?", (topic.id,))  # noqa: S608  # our own table names
    return topic


def deleted(tx: CatalogTransaction) -> list[tuple[TopicId, int]]:
    """Deleted topics that may still have extents, with their partition counts."""
    return [(TopicId(bytes(row[0])), row[1]) for row in tx.rows(DELETED)]


def forget(tx: CatalogTransaction, topic_id: TopicId) -> None:
    tx.rows(FORGET, (topic_id,))


def _lock(tx: CatalogTransaction, name: str) -> Topic:
    """Find a topic and lock its row until the transaction ends, so that it does not change between read and
    write."""
    found = tx.rows(LOCK, (name,))
    if not found:
        raise UnknownTopic(topic=name)
    return _topic(found[0])


def _insert_partitions(tx: CatalogTransaction, topic_id: TopicId, numbers: range, owner: str | None) -> None:
    owners = [owner] * len(numbers) if owner is not None else topology.place_new(tx, topic_id, numbers)
    rows = [
        (topic_id, number, got, int(got is not None)) for number, got in zip(numbers, owners, strict=True)
    ]
    tx.each(INSERT_PARTITION, rows)


def _topic(row: Row) -> Topic:
    topic_id, name, partitions, config, created_at = row
    return Topic(TopicId(bytes(topic_id)), name, partitions, created_at, json.loads(config))
