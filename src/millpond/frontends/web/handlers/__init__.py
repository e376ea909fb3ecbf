"""One file per thing that can be asked for. Importing them registers their operations."""

from millpond.frontends.web.handlers import (
    fetch,
    groups,
    payloads,
    produce,
    pull,
    status,
    stream,
    subscriptions,
    topics,
)

__all__ = ["fetch", "groups", "payloads", "produce", "pull", "status", "stream", "subscriptions", "topics"]
