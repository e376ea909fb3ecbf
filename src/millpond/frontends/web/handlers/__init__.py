"""One file per resource. Importing them registers their operations."""

from millpond.frontends.web.handlers import (
    cluster,
    fetch,
    groups,
    payloads,
    produce,
    pull,
    security,
    sessions,
    status,
    stream,
    subscriptions,
    topics,
)

__all__ = [
    "cluster",
    "fetch",
    "groups",
    "payloads",
    "produce",
    "pull",
    "security",
    "sessions",
    "status",
    "stream",
    "subscriptions",
    "topics",
]
