"""Where a consumer keeps its positions: in a file, under a group's name at the broker, or nowhere.

Positions are message numbers to read next, by partition.
"""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from millpond.client.calls import ADMIN, Connections
from millpond.model.errors import InvalidRequest, UnknownGroup
from millpond.stubs import admin_pb2

Answer = TypeVar("Answer")


class Positions(Protocol):
    """Kept between two lives of a consumer."""

    async def load(self) -> dict[int, int]:
        """What was saved last; empty if nothing was."""
        ...

    async def save(self, read_from: Mapping[int, int]) -> None:
        """Durable when it returns."""
        ...


class FilePositions:
    """A small JSON file, replaced as a whole: it holds the old positions or the new ones, never half of them. What it
    holds of other partitions stays."""

    def __init__(self, path: Path, topic: str) -> None:
        self._path = path
        self._topic = topic
        self._found: dict[int, int] = {}
        self._turn = threading.Lock()  # whoever was cancelled while saving leaves a thread that still does

    async def load(self) -> dict[int, int]:
        """Also fails where nothing could be saved later."""
        self._found = await asyncio.to_thread(self._try, self._load)
        return dict(self._found)

    async def save(self, read_from: Mapping[int, int]) -> None:
        positions = {**self._found, **read_from}
        await asyncio.to_thread(self._try, lambda: self._save(positions))

    def _try(self, work: Callable[[], Answer]) -> Answer:
        try:
            return work()
        except OSError as error:
            raise InvalidRequest(reason=f"positions cannot be kept in {self._path}: {error}") from error

    def _load(self) -> dict[int, int]:
        found = self._read()
        self._temporary.open("w").close()
        self._temporary.unlink()
        return found

    def _read(self) -> dict[int, int]:
        try:
            kept = json.loads(self._path.read_bytes())
            topic, found = kept["topic"], {int(number): int(at) for number, at in kept["read_from"].items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._broken() from error
        if topic != self._topic:
            raise InvalidRequest(reason=f"{self._path} holds positions of topic {topic!r}")
        if any(number < 0 or at < 1 for number, at in found.items()):
            raise self._broken()
        return found

    def _broken(self) -> InvalidRequest:
        return InvalidRequest(reason=f"{self._path} holds no positions; remove it to begin anew")

    @property
    def _temporary(self) -> Path:
        return self._path.with_name(self._path.name + ".new")

    def _save(self, read_from: dict[int, int]) -> None:
        with self._turn:
            self._replace(json.dumps({"topic": self._topic, "read_from": read_from}))

    def _replace(self, text: str) -> None:
        with self._temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._temporary.replace(self._path)
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
