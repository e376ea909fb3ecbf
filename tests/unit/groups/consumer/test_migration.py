"""Groups of the classic protocol that change to the consumer protocol: details that no transcript has."""

import struct

import pytest
from tests.transcripts.migration_stage import metadata_of

from millpond.groups.classic.group import ClassicGroup
from millpond.groups.classic.members import GroupMember, Protocol
from millpond.groups.classic.snapshot import Snapshot
from millpond.groups.consumer.messages import SubscribableTopic
from millpond.groups.consumer.migration import upgraded_state
from millpond.groups.consumer_protocol import write_assignment
from millpond.groups.limits import GroupLimits
from millpond.model.errors import UnknownGroup
from millpond.model.ids import TopicId, TopicPartition

LOGS = SubscribableTopic(TopicId(bytes(16)), "logs", 2)


class Topics:
    def find(self, name):
        return LOGS if name == LOGS.name else None

    def with_id(self, topic_id):
        return LOGS if topic_id == LOGS.topic_id else None

    def names(self):
        return [LOGS.name]


def group(assignor):
    """Its member has an assignment with data of the assignor, which follows the partitions."""
    assignment = write_assignment([("logs", 0)])[:-4] + struct.pack(">i2s", 2, b"!!")
    protocols = (Protocol(assignor, metadata_of(["logs"])),)
    member = GroupMember("alice", "alice", "here", 45_000, 60_000, protocols, None, assignment)
    snapshot = Snapshot(3, "consumer", assignor, "alice", (member,))
    return ClassicGroup.restored("readers", GroupLimits(), str, snapshot, 0).state


def test_what_librdkafka_adds_to_assignments_of_cooperative_sticky_is_left_out():
    state = upgraded_state(group("cooperative-sticky"), Topics(), GroupLimits())
    assert list(state.members["alice"].assigned) == [TopicPartition(LOGS.topic_id, 0)]


def test_data_of_a_custom_assignor_would_be_lost():
    with pytest.raises(UnknownGroup, match="adds data of its own"):
        upgraded_state(group("ours"), Topics(), GroupLimits())
