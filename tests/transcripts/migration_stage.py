"""The stage of consumer groups, with members of the classic protocol and groups that change their protocol.

A classic client remembers its member id, its generation and the partitions that it last synced; a join reports that it
owns these unless `owned=` says otherwise.

    oldgroup generation=3 alice=logs:0,1 bob=none [type=connect] [userdata] [garbage] [rebalancing] [empty]
             [owns=alice@logs:0,1/3+…]     what they said to own, and in which generation
    upgrade                          the classic group continues with the consumer protocol
    oldjoin NAME topics= [new] [owned=] [instance=] [version=] [session=] [rebalance=] [protocols=] [type=] [member=]
             [v4]: as a client that joins again with the id that it receives
    oldsync NAME [generation=] [protocol=] [type=]     oldbeat NAME [generation=]
    oldcommit NAME [generation=] logs:0
    downgrade                        to a classic group, if only its members are left; it is then played on as one
    oldshow
"""

import struct
from dataclasses import dataclass, field
from itertools import count

from tests.transcripts.consumer_group_stage import ConsumerGroupStage
from tests.unit.groups.consumer_topics import partitions_of, text_of

from millpond.groups.classic.group import ClassicGroup
from millpond.groups.classic.members import GroupMember, Protocol
from millpond.groups.classic.messages import (
    GroupResponse,
    Joined,
    JoinRequest,
    Synced,
    SyncRequest,
)
from millpond.groups.classic.snapshot import Snapshot, decode_members, encode_members
from millpond.groups.consumer.group import ConsumerGroup
from millpond.groups.consumer_protocol import read_assignment, write_assignment
from millpond.groups.limits import GroupLimits
from millpond.model.errors import MillpondError, RebalanceInProgress
from millpond.model.group_configs import MigrationPolicy
from millpond.model.ids import TopicPartition
from millpond.model.units import parse_duration_ms


def metadata_of(topics, owned=(), version=3, rack=None, generation=7):
    """What a Kafka consumer tells when it joins. `owned` are pairs of topic and partition."""
    written = [struct.pack(">hi", version, len(topics)), *map(_text, topics), struct.pack(">i", -1)]
    if version >= 1:
        written += [struct.pack(">i", len(owned))]
        written += [_text(name) + struct.pack(">ii", 1, number) for name, number in owned]
    if version >= 2:
        written.append(struct.pack(">i", generation))
    if version >= 3:
        written.append(struct.pack(">h", -1) if rack is None else _text(rack))
    return b"".join(written)


def _text(name):
    return struct.pack(">h", len(name)) + name.encode()


@dataclass
class ClassicClient:
    member_id: str = ""
    generation: int = -1
    instance: str | None = None
    owned: frozenset[TopicPartition] = field(default_factory=frozenset)


class MigrationStage(ConsumerGroupStage):
    def __init__(self):
        super().__init__()
        self.classic = None
        self.tickets = count()
        self.old = {}

    def do_policy(self, flags, _):
        self.limits = GroupLimits(consumer_migration_policy=MigrationPolicy(flags[0]))
        self.group, self.stored = ConsumerGroup("readers", self.limits, self._new_id), None
        return ["ok"]

    # -- a classic group --------------------------------------------------------------------------------------

    def do_oldgroup(self, flags, options):
        generation, kind = int(options.pop("generation")), options.pop("type", "consumer")
        static = options.pop("static", None)
        claims = dict(each.split("@") for each in options.pop("owns", "").split("+") if each)
        members = []
        for name, text in options.items():
            owned = partitions_of(text, self.topics)
            assignment = write_assignment(self._named(owned))
            if "userdata" in flags:
                assignment = assignment[:-4] + struct.pack(">i", 2) + b"!!"
            if "garbage" in flags:
                assignment = b"garbage"
            instance = f"i-{name}" if static == name else None
            told = self._claims(claims.get(name))
            protocols = (Protocol("range", told), Protocol("sticky", told))
            members.append(GroupMember(name, name, "here", 45_000, 60_000, protocols, instance, assignment))
            self.old[name] = ClassicClient(name, generation, instance, owned)
        leader = members[0].member_id if members else None
        snapshot = Snapshot(generation, kind, "range" if members else None, leader, tuple(members))
        self._play_classic(snapshot)
        if "rebalancing" in flags:
            self.classic.rebalance(self.now)
        return self.do_oldshow()

    def _claims(self, claim):
        """What a member has told that it owns, and the generation of that."""
        text, _, generation = (claim or "none/-1").partition("/")
        owned = sorted(self._named(partitions_of(text, self.topics)))
        return metadata_of(["logs"], owned, generation=int(generation))

    def do_oldwait(self, flags, options):
        """A join that the classic group does not answer yet."""
        self.classic.join(self._join_request(flags[0], flags, options), next(self.tickets), self.now)
        return self._effects() or [f"{flags[0]} waits"]

    def do_upgrade(self, *_):
        self.group = ConsumerGroup.upgraded(self.classic, self.topics, self.limits, self._new_id, self.now)
        self.stored = None  # in this form
        self.classic.kill(RebalanceInProgress(group="readers"))
        said = self._effects()
        self.classic = None
        return [*self.do_show(), *said]

    def do_downgrade(self, *_):
        snapshot = self.group.downgrade(self.topics)
        if snapshot is None:
            return ["stays"]
        self.stored = None
        assert decode_members(snapshot.generation, "consumer", encode_members(snapshot)) == snapshot
        self._play_classic(snapshot)
        return self.do_oldshow()

    def do_empty(self, *_):
        return [str(self.group.empty_snapshot())]

    def do_oldshow(self, *_):
        state = self.classic.state
        members = [
            f"  {each.member_id}: {text_of(self._known(read_assignment(each.assignment)), self.topics)}"
            for each in state.roster
        ]
        return [f"classic {state.phase}, generation {state.generation}", *members]

    # -- classic members of either group ----------------------------------------------------------------------

    def do_oldjoin(self, flags, options):
        name, *_ = flags
        request = self._join_request(name, flags, options)
        client = self.old[name]
        if self.classic is not None:
            self.classic.join(request, next(self.tickets), self.now)
            return self._effects() or [f"{name} waits"]
        joined = self.group.join(request, self.topics, self.config, self.now)
        return [self._say_joined(client, joined)]

    def do_oldsync(self, flags, options):
        client = self.old[flags[0]]
        request = SyncRequest(
            client.member_id,
            int(options.get("generation", client.generation)),
            client.instance,
            options.get("type"),
            options.get("protocol"),
        )
        if self.classic is not None:
            self.classic.sync(request, next(self.tickets), self.now)
            return self._effects()
        synced = self.group.sync(request, self.now)
        client.owned = self._known(read_assignment(synced.assignment))
        return [f"{client.member_id}: synced {synced.protocol}, {text_of(client.owned, self.topics)}"]

    def do_oldbeat(self, flags, options):
        client = self.old[flags[0]]
        group = self.group.heartbeat_classic if self.classic is None else self.classic.heartbeat
        generation = int(options.get("generation", client.generation))
        group(client.member_id, options.get("instance", client.instance), generation, self.now)
        return ["ok"]

    def do_oldcommit(self, flags, options):
        client = self.old[flags[0]]
        named = {"epoch": options.get("generation", client.generation), "member": client.member_id}
        return self.do_commit(flags, {**named, **options})

    # -- inside -----------------------------------------------------------------------------------------------

    def _store(self):
        return super()._store() if self.classic is None else []

    def _play_classic(self, snapshot):
        self.classic = ClassicGroup.restored("readers", self.limits, self._new_id, snapshot, self.now)

    def _join_request(self, name, flags, options):
        client = self.old.setdefault(name, ClassicClient())
        client.instance = options.get("instance", client.instance)
        if "new" in flags:
            client.member_id = ""
        owned = partitions_of(options["owned"], self.topics) if "owned" in options else client.owned
        topics = [each for each in options.get("topics", "logs").split(",") if each]
        version = int(options.get("version", 3))
        told = metadata_of(topics, sorted(self._named(owned)), version, options.get("rack"))
        if "garbage" in flags:
            told = b"garbage"
        names = [each for each in options.get("protocols", "range,sticky").split(",") if each]
        return JoinRequest(
            member_id=options.get("member", client.member_id),
            client_id=name,
            client_host="here",
            session_timeout_ms=parse_duration_ms(options.get("session", "45s")),
            rebalance_timeout_ms=parse_duration_ms(options.get("rebalance", "60s")),
            protocol_type=options.get("type", "consumer"),
            protocols=[Protocol(each, told) for each in names],
            instance_id=client.instance,
            require_known_id=self.classic is not None or "v4" in flags,
        )

    def _named(self, partitions):
        return [(self.topics.with_id(ident).name, number) for ident, number in partitions]

    def _known(self, assignment):
        partitions = assignment.partitions if assignment is not None else ()
        named = ((self.topics.find(name), number) for name, number in partitions)
        return frozenset(TopicPartition(topic.topic_id, number) for topic, number in named if topic)

    def _effects(self):
        said = []
        for effect in self.classic.take_effects():
            match effect:
                case GroupResponse(_, Joined() as joined):
                    [client] = [each for each in self.old.values() if each.member_id == joined.member_id]
                    said.append(self._say_joined(client, joined))
                case GroupResponse(_, Synced()):
                    said.append("synced")
                case GroupResponse(_, MillpondError() as error):
                    said.append(f"a member that waited: {type(error).__name__}")
        return said

    def _say_joined(self, client, joined):
        client.member_id, client.generation = joined.member_id, joined.generation
        leads = f", led by {joined.leader}" if joined.leader else ""
        return f"{joined.member_id}: generation {joined.generation}, {joined.protocol}{leads}"
