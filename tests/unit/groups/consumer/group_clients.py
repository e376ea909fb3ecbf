"""Clients of both protocols, which own partitions as Kafka's clients do: they give up late what they are asked for,
never own what they were not assigned, and after an error describe themselves completely."""

import asyncio
from itertools import cycle

from tests.transcripts.migration_stage import metadata_of

from millpond.groups import CommitSender, ConsumerHeartbeat, JoinRequest, LeaveRequest, Protocol, SyncRequest
from millpond.groups.consumer_protocol import read_assignment, read_metadata, write_assignment
from millpond.model.errors import (
    FencedInstance,
    FencedMemberEpoch,
    IllegalGeneration,
    MemberIdRequired,
    MillpondError,
    RebalanceInProgress,
    UnknownMember,
)
from millpond.model.ids import TopicPartition

GROUP = "readers"
SESSION_MS = 45_000
REBALANCE_MS = 60_000
MATCHES = {"t.*": ("t1", "t2", "t3"), "": ()}


class Client:
    """`owned_since` are the partitions that it processes, by the epoch in which it got them; `target` is its last
    assignment. `is_removed`: the group has removed it, and it has not heard of that."""

    def __init__(self, world, member_id, instance_id, topics):
        self.world, self.member_id, self.instance_id = world, member_id, instance_id
        self.topics, self.regex, self.assignor = topics, "", None
        self.owned_since = {}
        self.target = frozenset()
        self.epoch = 0
        self.is_removed = False
        self.removals = 0
        self.task = None

    def configure(self, kind, regex, assignor):
        raise NotImplementedError

    @property
    def owned(self):
        return frozenset(self.owned_since)

    @property
    def is_idle(self):
        return self.task is None or self.task.done()

    def subscribed(self):
        found = map(self.world.topics.find, {*self.topics, *MATCHES[self.regex]})
        return frozenset(
            TopicPartition(topic.topic_id, number)
            for topic in found
            if topic
            for number in range(topic.partitions)
        )

    def subscribe(self, topics):
        self.topics = topics

    def remove(self):
        """The group removes it. A response to a request that was sent before does not tell it."""
        self.is_removed = True
        self.removals += 1

    def send(self, request, receive, refuse):
        removals = self.removals

        async def sent():
            try:
                response = await request
            except MillpondError as error:
                if self.task is asyncio.current_task():
                    refuse(error)
            else:
                if self.task is asyncio.current_task():
                    is_told = removals == self.removals and receive != self._has_joined
                    receive(response)
                    is_removed = self.is_removed and not (is_told and self.owned <= self.target)
                    self.is_removed = is_removed

        self.task = asyncio.create_task(sent())

    def assign(self, assigned):
        """Gives up what is not assigned any more, later, and only then begins with the rest."""
        self.target = frozenset(assigned)
        if self.owned <= self.target:
            self.finish()

    def finish(self):
        self.owned_since = {each: self.owned_since.get(each, self.epoch) for each in self.target}

    def _has_joined(self, _):
        """A response that says nothing of partitions."""

    def lose_all(self):
        self.owned_since, self.target = {}, frozenset()


class ConsumerClient(Client):
    """Of the consumer protocol. `reports`: nothing, what it owns, or everything."""

    def configure(self, _, regex, assignor):
        self.regex, self.assignor = regex, assignor
        self.reports = "nothing"
        self.changed = False
        self.last = None

    @property
    def is_member(self):
        return self.epoch > 0 and not self.is_removed

    def subscribe(self, topics):
        super().subscribe(topics)
        self.changed = True

    def beat(self):
        if self.is_idle:
            self.last = self._request()
            self._send()

    def repeat(self):
        if self.last is not None:
            self._send()

    def lose(self):
        if not self.is_idle:
            self.task = None
            self.reports = "everything"

    def leave(self, *, pauses):
        """The process ends: it owns nothing from then on, whether or not the request arrives."""
        epoch = -2 if pauses and self.instance_id else -1
        request = ConsumerHeartbeat(self.member_id, epoch, self.member_id, "", self.instance_id)
        self.send(self._heartbeat(request), lambda _: None, lambda _: None)

    def _request(self):
        everything = self.reports == "everything" or self.epoch == 0
        owned = self.owned if everything or self.reports == "owned" else None
        subscription = everything or self.changed
        self.reports = "nothing"
        return ConsumerHeartbeat(
            self.member_id,
            self.epoch,
            client_id=self.member_id,
            client_host="",
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if everything else -1,
            topic_names=self.topics if subscription else None,
            topic_regex=self.regex if subscription else None,
            assignor=self.assignor,
            owned=owned,
        )

    def _send(self):
        self.send(self._heartbeat(self.last), self._receive, self._refused)

    def _heartbeat(self, request):
        return self.world.groups.consumer_heartbeat(GROUP, request, lambda _: True)

    def _receive(self, response):
        assert self.epoch <= response.member_epoch, "epochs never go back"
        self.epoch = response.member_epoch
        self.changed = self.changed and self.last.topic_names != self.topics
        if response.assignment is not None:
            before = self.owned
            self.assign(response.assignment)
            self.reports = "owned" if before != self.owned else self.reports

    def finish(self):
        if self.owned != self.target:
            self.reports = "owned"
        super().finish()

    def _refused(self, error):
        self.reports = "everything"
        if isinstance(error, FencedMemberEpoch | UnknownMember | FencedInstance):
            self.lose_all()
            self.epoch = 0


class ClassicClient(Client):
    """Of the classic protocol. An eager one gives everything up before it joins; a cooperative one keeps it, and joins
    again when it has given up what it was not assigned any more."""

    def configure(self, kind, _regex, _assignor):
        self.is_eager = kind == "eager"
        self.member_id = ""
        self.instance_id = None
        self.step = "join"
        self.joined = None
        self.epoch = -1

    @property
    def is_member(self):
        return self.step == "beat" and not self.is_removed

    def subscribe(self, topics):
        super().subscribe(topics)
        self.known = None

    def beat(self):
        if self.step == "beat" and self._has_to_join():
            self.step = "join"
        if self.is_idle and (self.owned == self.target or self.is_eager):
            getattr(self, f"_{self.step}")()

    def repeat(self):
        self.beat()

    def lose(self):
        if not self.is_idle:
            self.task = None
            self.step = "join" if self.step == "sync" else self.step

    def finish(self):
        if not self.owned <= self.target and not self.is_eager:
            self.step = "join"
        super().finish()

    def leave(self, *, pauses):
        if self.member_id:
            request = self.world.groups.leave(GROUP, [LeaveRequest(self.member_id)])
            self.send(request, lambda _: None, lambda _: None)

    def _has_to_join(self):
        """Its subscription has changed, or the topics, which a leader follows."""
        subscription, topics = self.known or (None, None)
        return subscription != self.topics or (self.joined.members and topics is not self.world.topics)

    def _join(self):
        self.known = self.topics, self.world.topics
        if self.is_eager:
            self.lose_all()
        named = [(self.world.topics.with_id(each.topic_id), each.partition) for each in sorted(self.owned)]
        owned = [(topic.name, number) for topic, number in named if topic is not None]
        protocol = Protocol("cooperative", metadata_of(list(self.topics), owned))
        request = JoinRequest(self.member_id, "classic", "", SESSION_MS, REBALANCE_MS, "consumer", [protocol])
        self.send(self.world.groups.join(GROUP, request), self._has_joined, self._refused)

    def _has_joined(self, joined):
        self.member_id, self.epoch, self.joined = joined.member_id, joined.generation, joined
        self.step = "sync"

    def _sync(self):
        assignments = assigned_by_leader(self.joined.members, self.world.topics)
        request = SyncRequest(self.member_id, self.epoch, assignments=assignments)
        self.send(self.world.groups.sync(GROUP, request), self._has_synced, self._refused)

    def _has_synced(self, synced):
        named = [
            (self.world.topics.find(name), n) for name, n in read_assignment(synced.assignment).partitions
        ]
        self.step = "beat"
        self.assign(TopicPartition(topic.topic_id, number) for topic, number in named if topic is not None)

    def _beat(self):
        sender = CommitSender(self.member_id, self.epoch)
        self.send(self.world.groups.heartbeat(GROUP, sender), lambda _: None, self._refused)

    def _refused(self, error):
        if isinstance(error, RebalanceInProgress):
            self.step = "join"
        elif isinstance(error, MemberIdRequired):
            self.member_id = error.facts["member_id"]
        elif isinstance(error, UnknownMember | IllegalGeneration):
            self.lose_all()
            self.member_id = "" if isinstance(error, UnknownMember) else self.member_id
            self.step = "join"
        elif self.step == "sync":
            self.step = "join"


def assigned_by_leader(members, topics):
    """What a cooperative assignor does: a partition that another member still owns is assigned to no member."""
    told = {each.member_id: read_metadata(each.protocols[0].metadata) for each in members}
    owners = {each: member_id for member_id, metadata in told.items() for each in metadata.owned}
    assigned = {member_id: [] for member_id in told}
    for name in sorted({name for metadata in told.values() for name in metadata.topics}):
        subscribers = cycle(sorted(member_id for member_id, each in told.items() if name in each.topics))
        topic = topics.find(name)
        for number in range(topic.partitions if topic is not None else 0):
            taker = next(subscribers)
            if owners.get((name, number), taker) == taker:
                assigned[taker].append((name, number))
    return {member_id: write_assignment(named) for member_id, named in assigned.items()}
