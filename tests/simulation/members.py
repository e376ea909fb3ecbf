"""Members of a consumer group: they join, share the partitions, read on from what was committed, and commit."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from tests.simulation.clients import Client, fetch
from tests.simulation.network import Unreachable
from tests.simulation.node import SimBroker

from millpond.catalog.groups import GroupOffset
from millpond.groups import JoinRequest, SyncRequest
from millpond.groups.classic.members import Protocol
from millpond.groups.classic.messages import Joined
from millpond.groups.coordinator import CommitSender
from millpond.model.errors import GroupError, MillpondError, Unavailable
from millpond.model.ids import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

T = TypeVar("T")
SESSION_MS = 6_000
REBALANCE_MS = 3_000
GROUP = "accounts"


class Member(Client):
    def __init__(self, simulation: "Simulation", name: str, topic_partitions: list[TopicPartition]) -> None:
        super().__init__(simulation, name)
        self._wheres = topic_partitions
        self._member_id = ""
        self.generations = 0

    async def run(self) -> None:
        while not self._all_committed():
            try:
                identity, assigned = await self._join()
                await self._work(identity, assigned)
            except (Unreachable, MillpondError) as error:
                self.doing = f"joins, after {type(error).__name__}"
                self._check_known(error)
                await self.look_around()
        self.done = True
        self.doing = "is done"

    def _all_committed(self) -> bool:
        """Whether the group has read everything there will ever be."""
        if not self.simulation.quiet:
            return False
        rows = self.simulation.catalog.rows(
            "SELECT partition, committed_offset FROM group_offsets WHERE group_id = ?", (GROUP,)
        )
        committed = dict(rows)
        return all(
            committed.get(topic_partition.partition, 0) == self.simulation.end_of(topic_partition)
            for topic_partition in self._wheres
        )

    def _check_known(self, error: Exception) -> None:
        """A group may send anybody away; what is neither that nor an outage is somebody's mistake."""
        if isinstance(error, GroupError):
            self._member_id = ""
        elif isinstance(error, MillpondError) and not isinstance(error, Unavailable):
            self._check_retriable(error)

    async def _join(self) -> tuple[CommitSender, list[TopicPartition]]:
        self.doing = "joins"
        request = JoinRequest(
            member_id=self._member_id,
            client_id=self.name,
            client_host="simulated",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(Protocol("range", self.name.encode()),),
            require_known_id=False,
        )
        joined = await self._ask_coordinator(lambda broker: broker.groups.join(GROUP, request), 15.0)
        self._member_id = joined.member_id
        sync = SyncRequest(joined.member_id, joined.generation, assignments=self._assign(joined))
        synced = await self._ask_coordinator(lambda broker: broker.groups.sync(GROUP, sync), 15.0)
        self.generations += 1
        numbers = json.loads(synced.assignment or b"[]")
        identity = CommitSender(joined.member_id, joined.generation)
        return identity, [
            topic_partition for topic_partition in self._wheres if topic_partition.partition in numbers
        ]

    def _assign(self, joined: Joined) -> dict[str, bytes]:
        if joined.leader != joined.member_id or joined.skip_assignment:
            return {}
        members = sorted(each.member_id for each in joined.members)
        shares = {
            member: [
                topic_partition.partition
                for n, topic_partition in enumerate(self._wheres)
                if members[n % len(members)] == member
            ]
            for member in members
        }
        return {member: json.dumps(share).encode() for member, share in shares.items()}

    async def _work(self, identity: CommitSender, assigned: list[TopicPartition]) -> None:
        committed = await self._ask_coordinator(lambda broker: broker.groups.committed_offsets(GROUP))
        positions = {
            topic_partition: committed.offsets[topic_partition].offset
            if topic_partition in committed.offsets
            else 0
            for topic_partition in assigned
        }
        while not self._all_committed():
            self.doing = f"works in generation {identity.generation}"
            moved = [
                topic_partition
                for topic_partition in assigned
                if await self._read(topic_partition, positions)
            ]
            if moved:
                offsets = [
                    GroupOffset(topic_partition, positions[topic_partition], -1, "")
                    for topic_partition in moved
                ]
                answers = await self._ask_coordinator(
                    lambda broker: broker.groups.commit_offsets(GROUP, offsets, identity)  # noqa: B023
                )
                self._check_answers(answers)
            await self._ask_coordinator(lambda broker: broker.groups.heartbeat(GROUP, identity))
            await asyncio.sleep(self.random.uniform(0.1, 1.0))

    def _check_answers(self, answers: list[MillpondError | None]) -> None:
        for answer in answers:
            if answer is not None:
                self._check_retriable(answer)

    async def _read(self, topic_partition: TopicPartition, positions: dict[TopicPartition, int]) -> bool:
        """Whether there was anything. Others go on although one partition cannot be read."""
        try:
            found = await self.ask(
                self.owner(topic_partition),
                fetch(topic_partition, positions[topic_partition], wait_ms=0),
                timeout_s=1.0,
            )
        except (Unreachable, MillpondError) as error:
            self._check_retriable(error)
            await self.look_around()
            return False
        for offset, value in found:
            self.simulation.checker.read(topic_partition, offset, value, self.name)
            positions[topic_partition] = offset + 1
        return bool(found)

    async def _ask_coordinator(
        self, function: Callable[[SimBroker], Awaitable[T]], timeout_s: float = 5.0
    ) -> T:
        return await self.ask(self.coordinator(GROUP), function, timeout_s)
