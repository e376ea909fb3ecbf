"""The positions of a consumer under the name of a consumer group, at the broker."""

from collections.abc import Mapping
from typing import Final

from millpond.client.coordinator_calls import CoordinatorCalls
from millpond.client.group_membership import GroupMembership
from millpond.model.errors import GroupInUse, UnknownGroup
from millpond.stubs import admin_pb2

HAS_MEMBERS: Final = "it has members, which share its partitions; a consumer without a partition joins them"


class GroupPositions:
    """The committed offsets of a consumer group, which Kafka's tools can see, too: those that a `member` commits, or
    those of an application that chooses a partition itself, under the name of a group without members."""

    def __init__(
        self, group: str, topic: str, coordinator: CoordinatorCalls, member: GroupMembership | None
    ) -> None:
        self._group = group
        self._topic = topic
        self._coordinator = coordinator
        self._member = member

    async def load(self, topic_id: str) -> dict[int, int]:
        request = admin_pb2.DescribeGroupRequest(name=self._group)
        try:
            found = await self._coordinator.call("DescribeGroup", request, admin_pb2.GroupDescription)
        except UnknownGroup:
            return {}
        if self._member is None and found.members:
            raise GroupInUse(group=self._group, reason=HAS_MEMBERS)
        return {
            each.partition: each.read_from
            for each in found.positions
            if each.topic == self._topic and not each.uncommitted
        }

    async def save(self, topic_id: str, read_from: Mapping[int, int]) -> None:
        """Raises TopicReplaced if the positions are those of an earlier topic of this name."""
        request = admin_pb2.CommitPositionsRequest(
            group=self._group, topic=self._topic, topic_id=topic_id, read_from=dict(read_from)
        )
        if self._member is not None:
            await self._member.commit(request)
        else:
            await self._coordinator.call("CommitPositions", request, admin_pb2.CommitPositionsResponse)
