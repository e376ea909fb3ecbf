"""The membership of a consumer in a group (KIP-848), without I/O: what is assigned to it, what it owns, and what its
next heartbeat says.

The coordinator assigns, and the consumer follows in its polls: it gives up what it owns and is not assigned any more,
and takes over what is new. The coordinator gives a partition to another member after a heartbeat without it, so a
heartbeat leaves out only what is not read and will not be read: it has what is owned, and what is assigned.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from millpond.model.errors import FencedMemberEpoch, IllegalGeneration, StaleMemberEpoch, UnknownMember
from millpond.stubs import admin_pb2

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
CLIENT_ID: Final = "millpond"
REBALANCE_TIMEOUT_S: Final = 300.0
"""How long a member may take from poll to poll. After that it leaves the group, and joins again in its next poll."""
LOST: Final = (FencedMemberEpoch, IllegalGeneration, StaleMemberEpoch, UnknownMember)
"""Errors of a member that has lost its partitions."""


class AssignedPartition(NamedTuple):
    topic: str
    topic_id: str
    partition: int


PartitionSet = frozenset[AssignedPartition]
NOTHING: Final[PartitionSet] = frozenset()


class MembershipState:
    """`epoch` is 0 while the consumer is no member. `assigned` is what it may own, and `owned` what it reads
    or is about to read."""

    def __init__(self, group: str, topics: Iterable[str], member_id: str) -> None:
        self.group = group
        self.member_id = member_id
        self._topics = tuple(topics)
        self.epoch = JOIN_EPOCH
        self.assigned = NOTHING
        self.owned = NOTHING

    @property
    def is_joined(self) -> bool:
        return self.epoch > JOIN_EPOCH

    @property
    def revoked(self) -> PartitionSet:
        """What it must give up."""
        return self.owned - self.assigned

    @property
    def added(self) -> PartitionSet:
        """What it may take over."""
        return self.assigned - self.owned

    def heartbeat(self) -> admin_pb2.GroupHeartbeatRequest:
        """Also joins. It is always complete, so it can be sent again if its response is lost."""
        assert self.is_joined or not self.owned, "a member that joins owns nothing"
        return admin_pb2.GroupHeartbeatRequest(
            group=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topics=self._topics,
            rebalance_timeout_ms=int(REBALANCE_TIMEOUT_S * 1000),
            owned=_assignment(self.owned | self.assigned),
            client_id=CLIENT_ID,
        )

    def leaving(self) -> admin_pb2.GroupHeartbeatRequest:
        return admin_pb2.GroupHeartbeatRequest(
            group=self.group, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )

    def accept(
        self, request: admin_pb2.GroupHeartbeatRequest, response: admin_pb2.GroupHeartbeatResponse
    ) -> None:
        """The response to a heartbeat. It is void if the membership was lost or left meanwhile."""
        if request.member_epoch != self.epoch:
            return
        self.epoch = response.member_epoch
        if response.HasField("assignment"):
            self.assigned = frozenset(_partitions(response.assignment))

    def give_up(self) -> None:
        """Everything that is revoked was dropped."""
        self.owned &= self.assigned

    def take_over(self, partitions: PartitionSet) -> None:
        """Of what is added, before anything of it is read. If it is revoked from now on, it has to be given up."""
        self.owned |= partitions

    def undo_take_over(self, partitions: PartitionSet) -> None:
        """These are not read after all."""
        self.owned -= partitions

    def end(self) -> None:
        """The membership was lost, or left: everything that it owned is revoked."""
        self.epoch = JOIN_EPOCH
        self.assigned = NOTHING


def _assignment(partitions: PartitionSet) -> admin_pb2.Assignment:
    numbers: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for topic, topic_id, partition in sorted(partitions):
        numbers[topic, topic_id].append(partition)
    topics = [
        admin_pb2.TopicPartitions(topic=topic, topic_id=topic_id, partitions=found)
        for (topic, topic_id), found in numbers.items()
    ]
    return admin_pb2.Assignment(topics=topics)


def _partitions(assignment: admin_pb2.Assignment) -> Iterable[AssignedPartition]:
    for each in assignment.topics:
        yield from (AssignedPartition(each.topic, each.topic_id, number) for number in each.partitions)
