"""What other packages need of the log, by role. `Log` has all of them. A part that names the narrowest one shows what
it may do, and can be tested with less than a log. Maintenance has `Upkeep` instead."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction
from millpond.log.buffer import AppendResult
from millpond.log.fetcher import FetchRequest, FetchResult
from millpond.log.partition import LogPartition
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.records import Buffer
from millpond.topology import TopicRegistry

T = TypeVar("T")


class CatalogRole(Protocol):
    """Reads and writes the catalog beside the log's own rows."""

    @property
    def topics(self) -> TopicRegistry:
        """The topics that this broker knows."""

    async def read(self, function: Callable[[CatalogTransaction], T], /) -> T:
        """Run a catalog read on the catalog threads."""

    async def write(self, operation: CommitOperation, /, *, own_commit: bool = False) -> Any:
        """Run a catalog operation through the commit queue; returns its value, or raises its error."""


class AppendRole(CatalogRole, Protocol):
    """Appends record batches to the partitions of topics, which it may create. See the methods of `Log`."""

    async def topic(self, name: str) -> Topic:
        """Reads the catalog if the topic is not known here."""

    async def find_partition(self, name: str, number: int) -> TopicPartition:
        """Return a partition by the name of its topic. See `topic`."""

    async def create_topic(
        self, name: str, partitions: int = 1, overrides: Mapping[str, str] | None = None
    ) -> Topic: ...

    async def refresh(self) -> None:
        """Apply the current state of the catalog."""

    def owns(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker serves the partition now."""

    def check(self, topic_partition: TopicPartition, data: Buffer) -> None:
        """Raise the error with which `submit` would immediately refuse these batches."""

    async def check_planned(self, topic: Topic, data: Buffer) -> None:
        """Like `check`, for a topic that does not exist yet."""

    def check_joint(self, topic_partition: TopicPartition, data: Buffer) -> None:
        """Raise the error with which `append_jointly` would immediately refuse these batches."""

    async def submit(self, topic_partition: TopicPartition, data: Buffer) -> "asyncio.Future[AppendResult]":
        """Accept batches for a partition that this broker owns; the future receives their result."""

    async def append_jointly(
        self, appends: Mapping[TopicPartition, Buffer], joint_operation: CommitOperation
    ) -> dict[TopicPartition, AppendResult]:
        """Append to several partitions, regardless of their owners, in one commit with the operation."""

    async def submit_jointly(
        self, appends: Mapping[TopicPartition, Buffer], joint_operation: CommitOperation
    ) -> "asyncio.Future[dict[TopicPartition, AppendResult]]":
        """Like `append_jointly`, but in the order of submits."""


class FetchRole(CatalogRole, Protocol):
    """Fetches record batches from partitions. See the methods of `Log`."""

    async def topic(self, name: str) -> Topic:
        """Reads the catalog if the topic is not known here."""

    def partition(self, topic_partition: TopicPartition) -> LogPartition:
        """This broker's state of a partition that it serves."""

    def owns(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker serves the partition now."""

    async def fetch(
        self,
        requests: Sequence[FetchRequest],
        *,
        bytes_max: int,
        bytes_min: int = 1,
        wait_ms: int = 0,
        read_committed: bool = False,
    ) -> list[FetchResult]:
        """Fetch from partitions that this broker owns. Results are in the order of the requests."""

    async def fetch_stored(self, request: FetchRequest, *, read_committed: bool = False) -> FetchResult:
        """Fetch from one partition, regardless of its owner."""

    async def in_pool(self, function: Callable[[], T], /) -> T:
        """Run a function that reads the store or takes long, on the threads for lagging readers."""
