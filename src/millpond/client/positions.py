"""Where a consumer keeps its positions: in a file, under a group's name at the broker, or nowhere.

Positions are message numbers to read next, by partition.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from millpond.client.calls import ADMIN, Connections
from millpond.model.errors import InvalidRequest, UnknownGroup
from millpond.stubs import admin_pb2


class Positions(Protocol):
    """Kept between two lives of a consumer."""

    async def load(self) -> dict[int, int]:
        """What was saved last; empty if nothing was."""
        ...

    async def save(self, read_from: Mapping[int, int]) -> None:
        """Durable when it returns."""
        ...


class FilePositions:
    """A small JSON file, replaced as a whole: it holds the old positions or the new ones, never half of them."""

    def __init__(self, path: Path, topic: str) -> None:
        self._path = path
        self._topic = topic

    async def load(self) -> dict[int, int]:
        return await asyncio.to_thread(self._load)

    async def save(self, read_from: Mapping[int, int]) -> None:
        await asyncio.to_thread(self._save, dict(read_from))

    def _load(self) -> dict[int, int]:
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return {}
        try:
            kept = json.loads(text)
            topic, found = kept["topic"], {int(number): int(at) for number, at in kept["read_from"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{self._path} holds no positions; remove it to begin anew"
            raise InvalidRequest(reason=reason) from error
        if topic != self._topic:
            raise InvalidRequest(reason=f"{self._path} holds positions of topic {topic!r}")
        return found

    def _save(self, read_from: dict[int, int]) -> None:
        temporary = self._path.with_name(self._path.name + ".new")
        with temporary.open("w") as file:
            json.dump({"topic": self._topic, "read_from": read_from}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class GroupPositions:
    """The offsets of a consumer group, which Kafka's tools see, too. The group must have no members."""

    def __init__(self, group: str, topic: str, connections: Connections) -> None:
        self._group = group
        self._topic = topic
        self._connections = connections

    async def load(self) -> dict[int, int]:
        request = admin_pb2.DescribeGroupRequest(name=self._group)
        try:
            found = await self._connections.call(ADMIN, "DescribeGroup", request, admin_pb2.GroupDescription)
        except UnknownGroup:
            return {}
        return {each.partition: each.read_from for each in found.positions if each.topic == self._topic}

    async def save(self, read_from: Mapping[int, int]) -> None:
        request = admin_pb2.CommitPositionsRequest(
            group=self._group, topic=self._topic, read_from=dict(read_from)
        )
        await self._connections.call(ADMIN, "CommitPositions", request, admin_pb2.CommitPositionsResponse)
