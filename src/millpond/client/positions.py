"""Stores for a consumer's positions, and the one that is a file. `group_positions.py` has the other one.

Positions are the numbers of the messages to read next, by partition. They belong to a topic's id: a topic
that is created again under the same name counts from 1 again.
"""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from millpond.model.errors import InvalidRequest, TopicReplaced

T = TypeVar("T")


class StoredPositions(Protocol):
    """Positions that outlive a consumer."""

    async def load(self, topic_id: str) -> dict[int, int]:
        """The positions saved last; empty if there are none. Raises TopicReplaced if they belong to an
        earlier topic of this name."""
        ...

    async def save(self, topic_id: str, read_from: Mapping[int, int]) -> None:
        """Durable when it returns."""
        ...


class FilePositions:
    """A small JSON file, replaced as a whole: it contains the old positions or the new ones, never a mixture.
    Positions of other partitions in the file are preserved."""

    def __init__(self, path: Path, topic: str) -> None:
        self._path = path
        self._topic = topic
        self._found: dict[int, int] = {}
        self._found_id = ""
        self._save_lock = threading.Lock()  # a save that was cancelled still runs on its thread

    async def load(self, topic_id: str) -> dict[int, int]:
        """Also fails if positions could not be saved later. A file without a topic id was written by an older
        version, and is accepted."""
        found_id, found = await asyncio.to_thread(self._try, self._load)
        if found_id not in ("", topic_id):
            raise TopicReplaced(topic=self._topic)
        self._found_id, self._found = topic_id, found
        return dict(found)

    async def save(self, topic_id: str, read_from: Mapping[int, int]) -> None:
        others = self._found if self._found_id == topic_id else {}
        positions = {**others, **read_from}
        await asyncio.to_thread(self._try, lambda: self._save(topic_id, positions))

    def _try(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise InvalidRequest(reason=f"positions cannot be kept in {self._path}: {error}") from error

    def _load(self) -> tuple[str, dict[int, int]]:
        found = self._read()
        self._temporary.open("w").close()
        self._temporary.unlink()
        return found

    def _read(self) -> tuple[str, dict[int, int]]:
        """The topic id and the positions."""
        try:
            kept = json.loads(self._path.read_bytes())
            topic, topic_id = kept["topic"], kept.get("topic_id", "")
            found = {int(number): int(at) for number, at in kept["read_from"].items()}
        except FileNotFoundError:
            return "", {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._broken() from error
        if topic != self._topic:
            raise InvalidRequest(reason=f"{self._path} holds positions of topic {topic!r}")
        if not isinstance(topic_id, str) or any(number < 0 or at < 1 for number, at in found.items()):
            raise self._broken()
        return topic_id, found

    def _broken(self) -> InvalidRequest:
        return InvalidRequest(reason=f"{self._path} holds no positions; remove it to start again")

    @property
    def _temporary(self) -> Path:
        return self._path.with_name(self._path.name + ".new")

    def _save(self, topic_id: str, read_from: dict[int, int]) -> None:
        with self._save_lock:
            kept = {"topic": self._topic, "topic_id": topic_id, "read_from": read_from}
            self._replace(json.dumps(kept))

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
