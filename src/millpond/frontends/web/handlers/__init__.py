"""One file per thing that can be asked for. Importing them registers their operations."""

from millpond.frontends.web.handlers import fetch, groups, produce, status, stream, topics

__all__ = ["fetch", "groups", "produce", "status", "stream", "topics"]
