"""A member of a group, on a connection of its own, as a consumer library would have it."""

import struct
from typing import Any

from tests.quirks.client import Client

from millpond.broker import Broker
from millpond.protocol import ErrorCode
from millpond.protocol.messages.group_admin import DescribeGroupsRequest
from millpond.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from millpond.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

SESSION_MS = 10_000
GROUP = "readers"


def subscription(*topics: str) -> bytes:
    """What Kafka's consumers say when they join."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Member(Client):
    """Remembers its id and generation, and says them unless told otherwise."""

    def __init__(self, broker: Broker, group: str = GROUP, instance: str | None = None) -> None:
        super().__init__(broker)
        self.group, self.instance = group, instance
        self.id, self.generation = "", -1

    def join_request(self, **rest: Any) -> JoinGroupRequest:
        protocols = rest.pop("protocols", [("range", subscription("orders"))])
        whole: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": SESSION_MS,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            **rest,
        }
        wanted = [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols]
        return JoinGroupRequest(protocols=wanted, **whole)

    async def join(self, *, version: int = 9, **rest: Any) -> Any:
        """Joins, with the id it is given first if it must."""
        answer = await self.ask(self.join_request(**rest), version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            answer = await self.ask(self.join_request(**rest), version)
        if answer.error_code == ErrorCode.NONE:
            self.id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync_request(self, assignments: dict[str, bytes] | None = None, **rest: Any) -> SyncGroupRequest:
        rows = [
            SyncGroupRequestAssignment(member_id=member, assignment=data)
            for member, data in (assignments or {}).items()
        ]
        whole: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            **rest,
        }
        return SyncGroupRequest(assignments=rows, **whole)

    async def sync(
        self, assignments: dict[str, bytes] | None = None, *, version: int = 5, **rest: Any
    ) -> Any:
        return await self.ask(self.sync_request(assignments, **rest), version)

    async def lead(self, **rest: Any) -> None:
        """Joins alone and takes everything."""
        joined = await self.join(**rest)
        assert joined.error_code == ErrorCode.NONE, joined
        synced = await self.sync({self.id: b"mine"})
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")

    async def heartbeat(self, *, version: int = 4, **rest: Any) -> ErrorCode:
        whole: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            **rest,
        }
        return ErrorCode((await self.ask(HeartbeatRequest(**whole), version)).error_code)

    async def leave(self) -> Any:
        leaving = MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        return await self.ask(LeaveGroupRequest(group_id=self.group, members=[leaving]), 5)

    async def commit(self, offset: int, *, topic: str = "orders", version: int = 9, **rest: Any) -> ErrorCode:
        part = OffsetCommitRequestPartition(
            partition_index=rest.pop("partition", 0),
            committed_offset=offset,
            committed_leader_epoch=rest.pop("leader_epoch", -1),
            committed_metadata=rest.pop("metadata", ""),
        )
        whole: dict[str, Any] = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            **rest,
        }
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[part])]
        answer = await self.ask(OffsetCommitRequest(topics=topics, **whole), version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def committed(self, topic: str = "orders", *partitions: int, stable: bool = False) -> Any:
        """The only topic of the group's answer: its first partition, or all that were asked for."""
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions) or [0])
        group = OffsetFetchRequestGroup(group_id=self.group, topics=[wanted])
        answer = await self.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 8)
        assert answer.groups[0].error_code == ErrorCode.NONE
        found = answer.groups[0].topics[0].partitions
        return found if partitions else found[0]

    async def described(self, *, version: int = 5) -> Any:
        return (await self.ask(DescribeGroupsRequest(groups=[self.group]), version)).groups[0]
