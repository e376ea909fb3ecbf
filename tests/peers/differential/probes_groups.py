"""Consumer groups: coordinators, membership, offsets, administration."""

import struct
import threading
from typing import Any

from tests.peers.differential.subject import Subject, probe
from tests.peers.differential.wire import Wire, make, plain

from millpond.protocol.messages import group_admin, group_offsets, groups

SESSION_MS = 10_000
REBALANCE_MS = 10_000


def _subscription(*names: str) -> bytes:
    """What Kafka's consumers say when they join."""
    parts = b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
    return struct.pack(">hi", 0, len(names)) + parts + struct.pack(">i", -1)


def _join_request(group: str, member: str = "", topic: str = "t", **rest: Any) -> groups.JoinGroupRequest:
    protocols = rest.pop("protocols", [("range", _subscription(topic))])
    return make(
        groups.JoinGroupRequest,
        group_id=group,
        session_timeout_ms=rest.pop("session", SESSION_MS),
        rebalance_timeout_ms=rest.pop("rebalance", REBALANCE_MS),
        member_id=member,
        group_instance_id=rest.pop("instance", None),
        protocol_type=rest.pop("kind", "consumer"),
        protocols=[make(groups.JoinGroupRequestProtocol, *each) for each in protocols],
    )


class Member:
    """One member of a group, on a connection of its own."""

    def __init__(self, subject: Subject, group: str, topic: str = "t", instance: str | None = None) -> None:
        self.wire, self.group, self.topic, self.instance = subject.another(), group, topic, instance
        self.id, self.generation, self.joined = "", -1, None

    def close(self) -> None:
        self.wire.__exit__()

    def join(self, **rest: Any) -> Any:
        """Joins, taking the id it is offered first."""
        answer = self._join(**rest)
        if answer.error_code == 79:  # MEMBER_ID_REQUIRED
            self.id = answer.member_id
            answer = self._join(**rest)
        self.id, self.generation, self.joined = answer.member_id, answer.generation_id, answer
        return answer

    def _join(self, **rest: Any) -> Any:
        request = _join_request(self.group, self.id, self.topic, instance=self.instance, **rest)
        return self.wire.ask(request, 9)

    def sync(self, assignments: dict[str, bytes] | None = None, version: int = 5, **rest: Any) -> Any:
        rows = [make(groups.SyncGroupRequestAssignment, *each) for each in (assignments or {}).items()]
        request = make(
            groups.SyncGroupRequest,
            group_id=self.group,
            generation_id=rest.pop("generation", self.generation),
            member_id=rest.pop("member", self.id),
            group_instance_id=self.instance,
            protocol_type=rest.pop("protocol_type", "consumer"),
            protocol_name=rest.pop("protocol_name", "range"),
            assignments=rows,
        )
        return plain(self.wire.ask(request, version))

    def lead(self) -> Any:
        """Joins alone and takes everything."""
        self.join()
        return self.sync({self.id: b"mine"})

    def heartbeat(self, generation: int | None = None, member: str | None = None) -> Any:
        request = make(
            groups.HeartbeatRequest,
            self.group,
            self.generation if generation is None else generation,
            self.id if member is None else member,
            self.instance,
        )
        return plain(self.wire.ask(request, 4))["error_code"]

    def leave(self) -> Any:
        row = make(groups.MemberIdentity, self.id, self.instance)
        return plain(self.wire.ask(make(groups.LeaveGroupRequest, self.group, members=[row]), 5))

    def commit(
        self, offset: int, generation: int | None = None, member: str | None = None, **rest: Any
    ) -> Any:
        return commit(
            self.wire,
            self.group,
            self.topic,
            offset,
            generation=self.generation if generation is None else generation,
            member=self.id if member is None else member,
            **rest,
        )


def commit(
    wire: Wire, group: str, topic: str, offset: int, generation: int = -1, member: str = "", **rest: Any
) -> Any:
    part = make(
        group_offsets.OffsetCommitRequestPartition,
        partition_index=rest.pop("partition", 0),
        committed_offset=offset,
        committed_metadata=rest.pop("metadata", ""),
    )
    request = make(
        group_offsets.OffsetCommitRequest,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[make(group_offsets.OffsetCommitRequestTopic, name=topic, partitions=[part])],
    )
    answer = wire.ask(request, rest.pop("version", 9))
    return answer if isinstance(answer, str) else plain(answer)["topics"][0]["partitions"][0]["error_code"]


def committed(
    subject: Subject, group: str, topic: str | None, partitions: tuple[int, ...] = (0,), **rest: Any
) -> Any:
    topics = topic and [
        make(group_offsets.OffsetFetchRequestTopics, name=topic, partition_indexes=list(partitions))
    ]
    wanted = make(group_offsets.OffsetFetchRequestGroup, group_id=group, topics=topics or None)
    request = make(
        group_offsets.OffsetFetchRequest, groups=[wanted], require_stable=rest.pop("stable", False)
    )
    answer = subject.tell(request, 8)
    return answer if isinstance(answer, str) else answer["groups"][0]


@probe
def find_coordinator(subject: Subject) -> Any:
    def asked(keys: list[str], kind: int = 0, version: int = 4) -> Any:
        request = make(
            groups.FindCoordinatorRequest, key=keys[0] if keys else "", key_type=kind, coordinator_keys=keys
        )
        return subject.settled(request, version)

    return {
        "group": asked([subject.name()]),
        "transaction": asked([subject.name()], 1),
        "empty group": asked([""]),
        "empty transaction": asked([""], 1),
        "unknown kind": asked(["x"], 7),
        "several": asked(["a", "b"]),
        "none": asked([]),
        "v0": asked(["a"], version=0),
        "v3": asked(["a"], version=3),
        "v3, unknown kind": asked(["a"], 7, version=3),
    }


@probe
def join_without_a_member_id(subject: Subject) -> Any:
    group = subject.name()
    subject.coordinator(group)
    told = {}
    for version in (3, 4, 9):
        with subject.another() as wire:
            told[str(version)] = plain(wire.ask(_join_request(f"{group}-{version}"), version))
    return told


@probe
def join_that_is_refused(subject: Subject) -> Any:
    group = subject.name()
    subject.coordinator(group)

    def asked(name: str = group, member: str = "", **rest: Any) -> Any:
        answer = subject.tell(_join_request(name, member, **rest), 9)
        return answer if isinstance(answer, str) else [answer["error_code"], answer["generation_id"]]

    return {
        "empty group": asked(""),
        "unknown member": asked(member="nobody"),
        "session too short": asked(session=10),
        "session too long": asked(session=36_000_000),
        "no protocols": asked(protocols=[]),
        "empty kind": asked(kind=""),
        "no rebalance timeout": asked(rebalance=-1),
    }


@probe
def a_group_of_one(subject: Subject) -> Any:
    topic, group = subject.topic(), subject.name()
    subject.coordinator(group)
    member = Member(subject, group, topic)
    joined = plain(member.join())
    joined["members"] = len(joined["members"])
    seen = {
        "joined": joined,
        "while it is synced": subject.group_state(group),
        "synced": member.sync({member.id: b"mine"}),
        "stable": subject.group_state(group),
        "heartbeat": member.heartbeat(),
        "committed": member.commit(5),
        "fetched": committed(subject, group, topic),
        "left": member.leave(),
        "heartbeat after": member.heartbeat(),
        "empty": subject.group_state(group),
        "offsets stay": committed(subject, group, topic),
    }
    member.id = ""
    seen["next generation"] = member.join().generation_id
    member.close()
    return seen


@probe
def joining_again_with_nothing_new(subject: Subject) -> Any:
    group = subject.name()
    subject.coordinator(group)
    member = Member(subject, group)
    member.lead()
    first = member.generation
    again = member.join()
    synced = member.sync({member.id: b"mine"})
    other = member.join(protocols=[("range", _subscription("other"))])
    return {
        "first": first,
        "leader again": again.generation_id,
        "sync": synced,
        "changed": other.generation_id,
    }


@probe
def two_members(subject: Subject) -> Any:
    topic, group = subject.topic(2), subject.name()
    subject.coordinator(group)
    first, second = Member(subject, group, topic), Member(subject, group, topic)
    first.lead()
    late = threading.Thread(target=second.join)
    late.start()
    told = subject.until(lambda: first.heartbeat(), lambda code: code != "NONE")
    state = subject.group_state(group)
    rejoined = first.join()
    late.join()
    seen: dict[str, Any] = {"told by heartbeat": told, "state": state["group_state"]}
    seen["commit while it is synced"] = first.commit(1)
    seen["generations"] = [rejoined.generation_id, second.generation]
    seen["leader stays"] = rejoined.leader == first.id
    seen["members that the leader sees"] = len(rejoined.members)
    seen["members that the other sees"] = len(second.joined.members)
    waiting: list[Any] = []
    follower = threading.Thread(target=lambda: waiting.append(second.sync()))
    follower.start()
    seen["leader's"] = first.sync({first.id: b"one", second.id: b"two"})
    follower.join()
    seen["follower's"] = waiting[0]
    seen["protocol"] = rejoined.protocol_name
    seen["old generation"] = first.heartbeat(generation=1)
    seen["leader left"] = first.leave()["error_code"]
    seen["the other is told"] = subject.until(lambda: second.heartbeat(), lambda code: code != "NONE")
    alone = second.join()
    seen["alone"] = [alone.generation_id, alone.leader == second.id]
    for each in (first, second):
        each.close()
    return seen


@probe
def a_member_with_other_protocols(subject: Subject) -> Any:
    group = subject.name()
    subject.coordinator(group)
    member = Member(subject, group)
    member.lead()

    def other(**rest: Any) -> Any:
        stranger = Member(subject, group)
        answer = stranger.join(**rest)
        stranger.close()
        return plain(answer.error_code, "error_code")

    seen = {
        "other protocol": other(protocols=[("sticky", b"x")]),
        "other kind": other(kind="connect"),
        "stays stable": member.heartbeat(),
    }
    member.close()
    return seen


@probe
def sync_that_is_refused(subject: Subject) -> Any:
    group = subject.name()
    subject.coordinator(group)
    member = Member(subject, group)
    before = member.sync({})
    member.join()
    seen = {
        "unknown group": before,
        "wrong generation": member.sync({}, generation=7),
        "unknown member": member.sync({}, member="nobody"),
        "other protocol": member.sync({}, protocol_name="sticky"),
        "other kind": member.sync({}, protocol_type="connect"),
        "good": member.sync({member.id: b"mine"}),
        "again": member.sync(),
        "with null protocols": member.sync(protocol_type=None, protocol_name=None),
    }
    member.close()
    return seen


@probe
def heartbeats_that_are_refused(subject: Subject) -> Any:
    group = subject.name()
    subject.coordinator(group)
    member = Member(subject, group)
    unknown = member.heartbeat(generation=1, member="nobody")
    member.lead()
    empty = Member(subject, "")
    seen = {
        "unknown group": unknown,
        "unknown member": member.heartbeat(member="nobody"),
        "wrong generation": member.heartbeat(generation=9),
        "empty member": member.heartbeat(member=""),
        "empty group": empty.heartbeat(generation=1, member="x"),
        "good": member.heartbeat(),
    }
    for each in (member, empty):
        each.close()
    return seen


@probe
def leaving_what_one_is_not_in(subject: Subject) -> Any:
    group = subject.name()
    subject.coordinator(group)

    def left(name: str, *members: str, version: int = 5) -> Any:
        rows = [make(groups.MemberIdentity, each) for each in members]
        request = make(groups.LeaveGroupRequest, name, member_id=members[0] if members else "", members=rows)
        return subject.tell(request, version)

    member = Member(subject, group)
    unknown = left(group, "nobody")
    member.lead()
    seen = {
        "unknown group": unknown,
        "unknown group, v2": left(subject.name(), "nobody", version=2),
        "unknown member": left(group, "nobody"),
        "one of two": left(group, "nobody", member.id),
        "nobody": left(group),
        "empty group": left("", "x"),
    }
    member.close()
    return seen


@probe
def static_members(subject: Subject) -> Any:
    group = subject.name()
    subject.coordinator(group)
    first = Member(subject, group, instance="one")
    joined = first.join()
    first.sync({first.id: b"mine"})
    second = Member(subject, group, instance="one")
    replaced = second.join()
    seen = {
        "first": [plain(joined.error_code, "error_code"), joined.generation_id],
        "takes its place": [plain(replaced.error_code, "error_code"), replaced.generation_id],
        "same id": replaced.member_id == first.id,
        "skips assignment": replaced.skip_assignment,
        "sync": second.sync(),
        "the old one": first.heartbeat(),
        "the old one commits": first.commit(1),
        "left by instance": plain(
            subject.ask(
                make(groups.LeaveGroupRequest, group, members=[make(groups.MemberIdentity, "", "one")]), 5
            )
        ),
    }
    for each in (first, second):
        each.close()
    return seen


@probe
def commits_without_a_member(subject: Subject) -> Any:
    topic, group = subject.topic(2), subject.name()
    subject.coordinator(group)

    def done(offset: int, **rest: Any) -> Any:
        return commit(subject.wire, rest.pop("group", group), rest.pop("topic", topic), offset, **rest)

    return {
        "plain": done(3),
        "with metadata": done(4, metadata="note", partition=1),
        "null metadata": done(4, metadata=None, partition=1),
        "too much metadata": done(4, metadata="x" * 4097),
        "just enough metadata": done(4, metadata="x" * 4096),
        "unknown topic": done(1, topic=subject.name()),
        "unknown partition": done(1, partition=9),
        "negative offset": done(-5),
        "past the end": done(10**12),
        "generation of nobody": done(1, generation=5, member="nobody"),
        "generation without a member": done(1, generation=5),
        "empty group": done(1, group=""),
        "state": subject.group_state(group),
        "fetched": committed(subject, group, topic, (0, 1, 9)),
    }


@probe
def commits_to_a_group_with_members(subject: Subject) -> Any:
    topic, group = subject.topic(), subject.name()
    subject.coordinator(group)
    member = Member(subject, group, topic)
    member.lead()
    seen = {
        "from outside": commit(subject.wire, group, topic, 1),
        "wrong generation": member.commit(1, generation=9),
        "unknown member": member.commit(1, member="nobody"),
        "good": member.commit(2),
        "every version": [member.commit(2, version=version) for version in range(2, 10)],
    }
    member.close()
    return seen


@probe
def fetch_offsets(subject: Subject) -> Any:
    topic, group = subject.topic(), subject.name()
    subject.coordinator(group)

    def old(name: str, topics: Any, version: int) -> Any:
        rows = (
            None
            if topics is None
            else [make(group_offsets.OffsetFetchRequestTopic, each, [0]) for each in topics]
        )
        return subject.tell(make(group_offsets.OffsetFetchRequest, group_id=name, topics=rows), version)

    seen = {
        "unknown group": committed(subject, group, topic),
        "unknown group, all": committed(subject, group, None),
        "empty group": committed(subject, "", topic),
        "unknown group, v1": old(group, [topic], 1),
        "unknown group, v5": old(group, [topic], 5),
        "unknown topic": committed(subject, group, subject.name()),
    }
    commit(subject.wire, group, topic, 7, metadata="note")
    seen["all"] = committed(subject, group, None)
    seen["v2, all"] = old(group, None, 2)
    seen["v7"] = old(group, [topic], 7)
    seen["stable"] = committed(subject, group, topic, stable=True)
    return seen


@probe
def describe_and_list_groups(subject: Subject) -> Any:
    topic, group, other = subject.topic(), subject.name(), subject.name()
    subject.coordinator(group)
    member = Member(subject, group, topic)
    member.lead()
    commit(subject.wire, other, topic, 1)

    def listed(version: int, states: Any = (), types: Any = ()) -> Any:
        answer = subject.tell(make(group_admin.ListGroupsRequest, list(states), list(types)), version)
        mine = [each for each in answer["groups"] if each["group_id"] in (group, other)]
        return sorted(mine, key=lambda each: each["group_id"])

    answer = subject.tell(make(group_admin.DescribeGroupsRequest, [group, subject.name(), ""]), 5)
    seen = {
        "described": answer,
        "v6, unknown": subject.tell(make(group_admin.DescribeGroupsRequest, [subject.name()]), 6),
        "listed": listed(5),
        "v0": listed(0),
        "stable": listed(4, ["Stable"]),
        "lower case": listed(4, ["stable"]),
        "empty": listed(4, ["Empty"]),
        "unknown state": listed(4, ["Sleeping"]),
        "classic": listed(5, [], ["classic"]),
        "consumer": listed(5, [], ["consumer"]),
    }
    member.close()
    return seen


@probe
def delete_groups(subject: Subject) -> Any:
    topic, group, empty = subject.topic(), subject.name(), subject.name()
    subject.coordinator(group)
    member = Member(subject, group, topic)
    member.lead()
    commit(subject.wire, empty, topic, 1)

    def deleted(*names: str) -> Any:
        return subject.tell(make(group_admin.DeleteGroupsRequest, list(names)), 2)["results"]

    seen = {
        "unknown": deleted(subject.name()),
        "with members": deleted(group),
        "empty one": deleted(empty),
        "again": deleted(empty),
        "its offsets": committed(subject, empty, topic),
        "empty name": deleted(""),
        "twice": deleted(subject.name(), subject.name()),
    }
    member.close()
    return seen


@probe
def delete_offsets(subject: Subject) -> Any:
    topic, unread, group = subject.topic(), subject.topic(), subject.name()
    subject.coordinator(group)
    member = Member(subject, group, topic)
    member.lead()
    member.commit(3)
    member.topic = unread
    member.commit(4)

    def deleted(name: str, which: str, partition: int = 0) -> Any:
        part = make(group_offsets.OffsetDeleteRequestPartition, partition)
        wanted = make(group_offsets.OffsetDeleteRequestTopic, which, [part])
        return subject.tell(make(group_offsets.OffsetDeleteRequest, name, [wanted]), 0)

    seen = {
        "unknown group": deleted(subject.name(), topic),
        "of a topic that is read": deleted(group, topic),
        "of one that is not": deleted(group, unread),
        "again": deleted(group, unread),
        "unknown topic": deleted(group, subject.name()),
        "unknown partition": deleted(group, unread, 9),
    }
    member.leave()
    seen["after all left"] = deleted(group, topic)
    seen["state"] = subject.group_state(group)
    member.close()
    return seen


@probe
def offsets_of_a_topic_that_is_deleted(subject: Subject) -> Any:
    from millpond.protocol.messages import topics

    topic, group = subject.topic(), subject.name()
    subject.coordinator(group)
    commit(subject.wire, group, topic, 3)
    state = make(topics.DeleteTopicState, topic)
    subject.ask(make(topics.DeleteTopicsRequest, topics=[state], timeout_ms=10_000), 6)
    gone = subject.until(lambda: committed(subject, group, None), lambda answer: not answer.get("topics"))
    return {"fetched": gone, "state": subject.group_state(group)}


@probe
def a_member_that_falls_silent(subject: Subject) -> Any:
    topic, group = subject.topic(), subject.name()
    subject.coordinator(group)
    member = Member(subject, group, topic)
    member.join(session=6_000)
    member.sync({member.id: b"mine"})
    gone = subject.until(lambda: subject.group_state(group), lambda state: state["members"] == 0)
    seen = {"state": gone, "heartbeat": member.heartbeat(), "commit": member.commit(1)}
    member.close()
    return seen
