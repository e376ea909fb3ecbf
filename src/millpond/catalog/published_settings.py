"""Broker settings that other processes must know: Spark jobs work on the same topics, and no broker need be running.

Each broker writes them when it joins. If brokers have different settings, those of the broker that joined
last apply. A catalog to which no broker has written them has the defaults.
"""

from dataclasses import dataclass, fields
from typing import Final

from millpond.catalog.database import CatalogTransaction

PREFIX: Final = "setting."
READ: Final = "SELECT name, value FROM meta WHERE name >= ? AND name < ?"
WRITE: Final = """
    INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""


@dataclass(frozen=True, slots=True)
class PublishedSettings:
    retention_grace_ms: int = 5 * 60 * 1000
    """Retention by age removes nothing that has been stored for less than this, or for less than its
    retention time."""
    auto_create_topics: bool = True
    """Whether producing to an unknown topic creates it."""
    default_partitions: int = 1
    """Partitions of a topic that is created by producing to it."""


def publish(tx: CatalogTransaction, settings: PublishedSettings) -> None:
    if read(tx) != settings or not _rows(tx):
        values = [(PREFIX + each.name, int(getattr(settings, each.name))) for each in fields(settings)]
        tx.each(WRITE, [(name, str(value)) for name, value in values])


def read(tx: CatalogTransaction) -> PublishedSettings:
    found, defaults = _rows(tx), PublishedSettings()
    grace_ms, creates, partitions = (
        int(found.get(PREFIX + each.name, getattr(defaults, each.name))) for each in fields(defaults)
    )
    return PublishedSettings(grace_ms, bool(creates), partitions)


def _rows(tx: CatalogTransaction) -> dict[str, str]:
    return dict(tx.rows(READ, (PREFIX, PREFIX[:-1] + chr(ord(PREFIX[-1]) + 1))))
