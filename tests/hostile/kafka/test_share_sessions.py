"""Members of share groups that ask for absurd things, acknowledge what is not theirs, never acknowledge, and come by
the thousand: a clear error, nothing left behind, and the others are served."""

from tests.hostile.kafka.siege import eventually, send_batch, written
from tests.hostile.kafka.test_absurd_values import TEXTS

from millpond.frontends.kafka.share_sessions import PARTITIONS_MAX, SESSIONS_MAX
from millpond.protocol import ErrorCode
from millpond.protocol.messages import share_fetch as wire
from millpond.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
    ShareGroupHeartbeatRequest,
)
from millpond.records import Record, build_batch

MESSAGES = 10
FAR = 2**31
FARTHEST = 2**63 - 1
ENTRIES = 90_000
"""The codec reads fewer than 100,000."""


def heartbeat(group="group", member="member", epoch=0, topics=("target",)):
    names = None if topics is None else list(topics)
    return ShareGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=names
    )


def fetch(topic_id, epoch, *, group="group", member="member", numbers=(0,), acks=(), records=100, **values):
    """`acks` of the first partition: (first offset, last offset, types)."""
    parts = [
        wire.ShareFetchPartition(
            partition_index=number, acknowledgement_batches=batches(acks) if index == 0 else []
        )
        for index, number in enumerate(numbers)
    ]
    topics = [wire.ShareFetchTopic(topic_id=topic_id, partitions=parts)] if parts else []
    values = {"max_wait_ms": 0, "min_bytes": 1, "forgotten_topics_data": [], **values}
    return wire.ShareFetchRequest(
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        max_records=records,
        batch_size=records,
        topics=topics,
        **values,
    )


def acknowledge(topic_id, epoch, acks, *, member="member", number=0):
    part = wire.ShareAcknowledgePartition(partition_index=number, acknowledgement_batches=batches(acks))
    topic = wire.ShareAcknowledgeTopic(topic_id=topic_id, partitions=[part])
    return wire.ShareAcknowledgeRequest(
        group_id="group", member_id=member, share_session_epoch=epoch, topics=[topic]
    )


def batches(acks):
    return [
        wire.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        for first, last, types in acks
    ]


class Share:
    """A broker with a topic of ten messages, which a group shares."""

    def __init__(self, siege):
        self.siege = siege
        siege.create_topic("target", 2)
        self.wire = siege.attacker()
        for _ in range(MESSAGES):
            send_batch(self.wire, "target", build_batch([Record(b"value")]))
        self.topic_id = siege.call(lambda: bytes(siege.server.services.log.topics.named("target").id))
        self.start("group")

    def start(self, group):
        response = self.wire.ask(heartbeat(group), 1)
        assert response.error_code == ErrorCode.NONE
        self.wire.ask(heartbeat(group, epoch=-1, topics=None), 1)
        parts = [AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name="target", partitions=parts)
        moved = self.wire.ask(AlterShareGroupOffsetsRequest(group_id=group, topics=[topic]), 0)
        assert moved.error_code == ErrorCode.NONE

    def sessions(self):
        return self.siege.call(lambda: len(self.siege.server.services.share_sessions))

    def members(self):
        return self.siege.call(lambda: len(self.siege.server.services.share_consumers._members))


class Member:
    """It begins with a session that has acquired its first messages."""

    def __init__(self, share, *, name="member", wire=None, records=100, count=MESSAGES):
        self.name, self.wire, self.epoch = name, wire or share.wire, 0
        self._topic_id = share.topic_id
        self.held = self.take(count, records)

    def take(self, count, records=100):
        """The next messages. The broker may give them in several responses."""
        found = []
        while len(found) < count:
            request = self.fetch(records=records - len(found), max_wait_ms=60_000)
            found += acquired(self.wire.ask(request, 1))
            self.epoch += 1
        return found

    def fetch(self, epoch=None, **values):
        return fetch(self._topic_id, self.epoch if epoch is None else epoch, member=self.name, **values)

    def acknowledge(self, acks):
        """The error of the partition."""
        response = self.wire.ask(acknowledge(self._topic_id, self.epoch, acks, member=self.name), 1)
        assert response.error_code == ErrorCode.NONE
        self.epoch += 1
        return ErrorCode(response.responses[0].partitions[0].error_code)


def acquired(response):
    assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
    return [
        offset
        for topic in response.responses
        for part in topic.partitions
        for each in part.acquired_records
        for offset in range(each.first_offset, each.last_offset + 1)
    ]


REFUSED = {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD_STATE}
ABSURD_ACKS = {
    "huge": [(0, FAR, [1])],
    "far": [(FARTHEST - 1, FARTHEST, [1])],
    "everything": [(0, FARTHEST, [1])],
    "backwards": [(5, 0, [1])],
    "negative": [(-5, 0, [1])],
    "overlapping": [(0, 3, [1]), (2, 5, [1])],
    "unsorted": [(4, 5, [1]), (0, 1, [1])],
    "no type": [(0, 1, [])],
    "too few types": [(0, 4, [1, 1])],
    "too many types": [(0, 1, [1] * ENTRIES)],
    "unknown type": [(0, 0, [9])],
    "negative type": [(0, 0, [-1])],
    "renewal in version 1": [(0, 0, [4])],
    "contradictory": [(0, 0, [1]), (0, 0, [3])],
    "not acquired": [(2, 2, [1])],
    "half acquired": [(0, 5, [1])],
}


def test_absurd_acknowledgements_change_nothing(attacked_broker):
    with attacked_broker("absurd acknowledgements") as siege:
        member = Member(Share(siege), records=2, count=2)
        for name, acks in ABSURD_ACKS.items():
            assert member.acknowledge(acks) in REFUSED, name
        assert member.acknowledge([(0, 1, [1])]) is ErrorCode.NONE
        assert member.acknowledge([(0, 1, [1])]) is ErrorCode.NONE, "what is settled is ignored"
        assert member.take(MESSAGES - 2) == list(range(2, MESSAGES))


def test_acknowledgements_of_messages_of_others_are_refused(attacked_broker):
    with attacked_broker("acknowledgements for others") as siege:
        share = Share(siege)
        holder = Member(share, name="holder", records=3, count=3)
        with siege.attacker() as wire:
            thief = Member(share, name="thief", wire=wire, records=3, count=3)
            assert (holder.held, thief.held) == ([0, 1, 2], [3, 4, 5])
            for acks in ([(0, 2, [1])], [(2, 3, [1])], [(0, 5, [3])]):
                assert thief.acknowledge(acks) is ErrorCode.INVALID_RECORD_STATE
        eventually(lambda: share.members() == 1, "the thief's locks are released")
        assert holder.acknowledge([(0, 2, [1])]) is ErrorCode.NONE
        assert holder.take(MESSAGES - 3) == list(range(3, MESSAGES))


def test_epochs_that_jump_are_refused_and_leave_the_session(attacked_broker):
    with attacked_broker("session epochs") as siege:
        share = Share(siege)
        member = Member(share)
        for epoch in (0x7FFF_FFFF, member.epoch + 1, member.epoch - 1 or -2, -2, -(2**31)):
            for request in (member.fetch(epoch), acknowledge(share.topic_id, epoch, [(0, 0, [1])])):
                code = ErrorCode(share.wire.ask(request, 1).error_code)
                assert code is ErrorCode.INVALID_SHARE_SESSION_EPOCH, epoch
        response = share.wire.ask(acknowledge(share.topic_id, 1, [(0, 0, [1])], member="nobody"), 1)
        assert ErrorCode(response.error_code) is ErrorCode.SHARE_SESSION_NOT_FOUND
        response = share.wire.ask(member.fetch(0, acks=[(0, 0, [1])]), 1)
        assert ErrorCode(response.error_code) is ErrorCode.INVALID_REQUEST
        assert member.acknowledge([(0, MESSAGES - 1, [1])]) is ErrorCode.NONE


def test_sessions_by_the_thousand_are_bounded_and_end_with_their_connection(attacked_broker):
    with attacked_broker("share sessions") as siege:
        share = Share(siege)
        with siege.attacker() as many:
            for number in range(SESSIONS_MAX):
                many.ask(fetch(share.topic_id, 0, member=f"m{number}", records=0), 1)
            response = many.ask(fetch(share.topic_id, 0, member="one more"), 1)
            assert ErrorCode(response.error_code) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
            assert share.sessions() == SESSIONS_MAX
        eventually(lambda: (share.sessions(), share.members()) == (0, 0), "all sessions are closed")
        assert len(Member(share).held) == MESSAGES


def test_members_that_never_acknowledge_give_back_what_they_hold(attacked_broker):
    with attacked_broker("members that never acknowledge") as siege:
        share = Share(siege)
        for number in range(3):
            with siege.attacker() as wire:
                silent = Member(share, name=f"silent-{number}", wire=wire)
                assert silent.held == list(range(MESSAGES))
                wire.reset()
            eventually(lambda: share.members() == 0, "its locks are released")
        assert Member(share).held == list(range(MESSAGES))


def test_connections_that_break_while_they_open_sessions_leave_none(attacked_broker):
    with attacked_broker("broken connections") as siege:
        share = Share(siege)
        for number in range(200):
            with siege.attacker() as broken:
                opening = fetch(share.topic_id, 0, member=f"m{number}", records=0, max_wait_ms=60_000)
                again = fetch(share.topic_id, 0, member=f"n{number}", records=0)
                broken.send(written(opening, 1) + written(again, 1, 2))
                broken.reset()
        eventually(lambda: (share.sessions(), share.members()) == (0, 0), "all sessions are closed")
        assert Member(share).held == list(range(MESSAGES))


def test_a_session_has_a_limit_of_partitions_and_stays_as_it_is_beyond_it(attacked_broker):
    with attacked_broker("partitions of a session") as siege:
        share = Share(siege)
        member = Member(share)
        numbers = range(PARTITIONS_MAX + 1)
        for asked in (member.fetch(numbers=numbers), fetch(share.topic_id, 0, member="n", numbers=numbers)):
            assert ErrorCode(share.wire.ask(asked, 1).error_code) is ErrorCode.INVALID_REQUEST
        member.epoch += 1
        assert share.members() == 1
        assert member.acknowledge([(0, MESSAGES - 1, [1])]) is ErrorCode.NONE


def test_many_partitions_that_do_not_exist_get_an_error_each(attacked_broker):
    with attacked_broker("partitions that do not exist") as siege:
        share = Share(siege)
        odd = [*range(-100, 5_000), 2**31 - 1, -(2**31)]
        response = share.wire.ask(fetch(share.topic_id, 0, numbers=odd), 1)
        found = {
            part.partition_index: part.error_code for each in response.responses for part in each.partitions
        }
        assert set(found) == set(odd)
        assert {number for number, code in found.items() if code == ErrorCode.NONE} == {0, 1}
        unknown = share.wire.ask(fetch(b"\xff" * 16, 1, numbers=[0]), 1)
        codes = {part.error_code for each in unknown.responses for part in each.partitions}
        assert ErrorCode.UNKNOWN_TOPIC_ID in codes


def test_long_and_odd_ids_are_kept_apart_or_refused(attacked_broker):
    with attacked_broker("odd ids of share groups") as siege:
        share = Share(siege)
        for text in TEXTS:
            if not text:
                continue
            joined = share.wire.ask(heartbeat(text), 1)
            assert ErrorCode(joined.error_code) in (
                ErrorCode.NONE,
                ErrorCode.INVALID_GROUP_ID,
                ErrorCode.INVALID_REQUEST,
            )
            share.wire.ask(fetch(share.topic_id, 0, group=text, member=text), 1)
            share.wire.ask(heartbeat(member=text), 1)
            share.wire.ask(heartbeat(topics=[text]), 1)
            asked = DescribeShareGroupOffsetsRequestGroup(group_id=text, topics=None)
            share.wire.ask(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
            topic = DeleteShareGroupOffsetsRequestTopic(topic_name=text)
            share.wire.ask(DeleteShareGroupOffsetsRequest(group_id=text, topics=[topic]), 0)
        described = share.wire.ask(ShareGroupDescribeRequest(group_ids=list(TEXTS)), 1).groups
        assert [each.group_id for each in described] == list(TEXTS)


def test_sessions_of_groups_that_do_not_exist_hold_nothing(attacked_broker):
    with attacked_broker("sessions without groups") as siege:
        share = Share(siege)
        for number in range(200):
            response = share.wire.ask(fetch(share.topic_id, 0, group=f"unknown-{number}"), 1)
            assert acquired(response) == []
            share.wire.ask(fetch(share.topic_id, -1, group=f"unknown-{number}", numbers=()), 1)
        assert (share.sessions(), share.members()) == (0, 0)
