"""Configs of groups and brokers that apply without a restart, with one version for all of them.

Every change raises the version in the same transaction, so that a broker sees with one read whether it must load them
again. The version's row stays locked until the change commits: no two changes start from the same configs.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Final

from millpond.catalog.database import CatalogTransaction
from millpond.model.dynamic_configs import ConfigResource, DynamicConfigs
from millpond.model.errors import InvalidRequest

CONFIGS_MAX: Final = 100_000
"""Every broker holds all of them in memory."""
VERSION: Final = "SELECT next FROM counters WHERE name = 'dynamic_configs'"
BUMP: Final = "UPDATE counters SET next = next + 1 WHERE name = 'dynamic_configs'"
ALL: Final = "SELECT resource_type, resource_name, name, value FROM dynamic_configs"
OF: Final = "SELECT name, value FROM dynamic_configs WHERE resource_type = ? AND resource_name = ?"
PUT: Final = """
    INSERT INTO dynamic_configs (resource_type, resource_name, name, value) VALUES (?, ?, ?, ?)
    ON CONFLICT (resource_type, resource_name, name) DO UPDATE SET value = excluded.value
"""
DELETE: Final = "DELETE FROM dynamic_configs WHERE resource_type = ? AND resource_name = ? AND name = ?"
COUNT: Final = "SELECT count(*) FROM dynamic_configs"

Alteration = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the new configs of a resource, given its current ones, or raises."""


def version(tx: CatalogTransaction) -> int:
    found: int = tx.rows(VERSION)[0][0]
    return found


def read(tx: CatalogTransaction) -> DynamicConfigs:
    """All configs. The version is read first: a change that is committed meanwhile is read again with the next
    version."""
    at = version(tx)
    found: dict[ConfigResource, dict[str, str]] = defaultdict(dict)
    for kind, resource_name, name, value in tx.rows(ALL):
        found[ConfigResource(kind, resource_name)][name] = value
    return DynamicConfigs(at, dict(found))


def of(tx: CatalogTransaction, resource: ConfigResource) -> dict[str, str]:
    return dict(tx.rows(OF, resource))


def alter(tx: CatalogTransaction, resource: ConfigResource, alteration: Alteration) -> None:
    """Replace the configs of a resource by what `alteration` returns for the current ones."""
    tx.rows(BUMP)
    before = of(tx, resource)
    after = alteration(before)
    tx.each(DELETE, [(*resource, name) for name in before.keys() - after.keys()])
    tx.each(PUT, [(*resource, name, value) for name, value in after.items() if before.get(name) != value])
    if len(after) > len(before) and tx.rows(COUNT)[0][0] > CONFIGS_MAX:
        raise InvalidRequest(reason=f"a cluster has at most {CONFIGS_MAX} configs of groups and brokers")
