"""The stage on which stories of consumer groups (KIP-848) are played: clients by name, topics, and time that passes
when told. After each command, what has to be stored is stored, and the story says what that was.

A client remembers its epoch, its instance and the assignment it last received, as real ones do; its name is its member
id. `owned` reports the assignment, `owned=` something else; without either it reports nothing.

    topics logs=4 other=2 ; 0 deletes one     hidden NAME… ; nobody may describe these
    join NAME topics=a,b [regex=] [instance=] [assignor=] [rack=] [rebalance=] [new] [owned=] [host=]
    beat NAME [owned] [owned=logs:0,1;other:0] [full] [epoch=] [topics=] [regex=] [assignor=] [instance=] [member=]
    leave NAME [noinstance]    pause NAME [noinstance]    remove NAME… | remove instance=
    commit NAME [epoch=] [member=] [txn] logs:0 logs:1    fetch NAME [epoch=]
    pass 3s     show     limits name=number…     config session= interval=     restart ; from what is stored     kill
    regexes ; which topics they match     stored ; as text
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count

from tests.unit.groups.consumer_topics import KnownTopics, partitions_of, text_of

from millpond.groups.classic.messages import LeaveRequest
from millpond.groups.consumer.group import ConsumerGroup
from millpond.groups.consumer.messages import ConsumerHeartbeat, StoredGroup
from millpond.groups.consumer.stored import decode_matches, is_regex_row
from millpond.groups.limits import GroupLimits
from millpond.model.errors import MillpondError
from millpond.model.group_configs import GroupConfig
from millpond.model.ids import TopicPartition
from millpond.model.units import format_duration, parse_duration_ms


@dataclass
class ConsumerClient:
    member_id: str
    epoch: int = -1
    instance: str | None = None
    topics: str = ""
    regex: str | None = None
    assigned: frozenset[TopicPartition] = field(default_factory=frozenset)


class ConsumerGroupStage:
    def __init__(self):
        self.now = 0
        self.limits = GroupLimits()
        self.config = GroupConfig()
        self.numbers = count(1)
        self.topics = KnownTopics({})
        self.hidden = set()
        self.clients = {}
        self.stored = None
        self.group = ConsumerGroup("readers", self.limits, self._new_id)

    def perform(self, command):
        verb, *words = command.replace(r"\0", "\0").split()
        flags = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        try:
            said = getattr(self, f"do_{verb}")(flags, options)
        except MillpondError as error:
            said = [f"{type(error).__name__}: {error}"]
        return [*said, *self._store()]

    # -- commands ---------------------------------------------------------------------------------------------

    def do_topics(self, _, options):
        self.topics = self.topics.changed(**{name: int(number) for name, number in options.items()})
        return ["ok"]

    def do_hidden(self, flags, _):
        self.hidden = set(flags)
        return ["ok"]

    def do_join(self, flags, options):
        name, *rest = flags
        client = self.clients[name] = ConsumerClient(
            options.get("member", "" if "new" in rest else name), 0, options.get("instance")
        )
        options = {"owned": "none", "rebalance": "60s", **options}
        return self._beat(name, client, 0, rest, options)

    def do_beat(self, flags, options):
        name, *rest = flags
        client = self.clients[name]
        if "owned" in rest or "full" in rest:
            options = {"owned": text_of(client.assigned, self.topics), **options}
        if "full" in rest:
            options = {"topics": client.topics, "rebalance": "60s", **options}
        return self._beat(name, client, int(options.get("epoch", client.epoch)), rest, options)

    def do_leave(self, flags, options):
        return self._beat(flags[0], self.clients[flags[0]], -1, flags[1:], options)

    def do_pause(self, flags, options):
        return self._beat(flags[0], self.clients[flags[0]], -2, flags[1:], options)

    def do_remove(self, flags, options):
        leaving = [LeaveRequest(options.get("member", name), options.get("instance")) for name in flags]
        outcomes = self.group.leave(leaving or [LeaveRequest("", options["instance"])], self.now)
        return [self._say_outcome(each) for each in outcomes]

    def do_commit(self, flags, options):
        name, *rest = flags
        client = self.clients.get(name, ConsumerClient(""))
        named = [each for each in rest if ":" in each]
        partitions = [each for text in named for each in partitions_of(text, self.topics)]
        outcomes = self.group.check_commit(
            options.get("member", client.member_id),
            options.get("instance"),
            int(options.get("epoch", client.epoch)),
            partitions,
            self.now,
            transactional="txn" in rest,
        )
        return [f"{text} {self._say_outcome(each)}" for text, each in zip(named, outcomes, strict=True)]

    def do_fetch(self, flags, options):
        client = self.clients.get(flags[0], ConsumerClient(""))
        self.group.check_fetch(client.member_id, int(options.get("epoch", client.epoch)))
        return ["ok"]

    def do_pass(self, flags, _):
        end = self.now + parse_duration_ms(flags[0])
        said = []
        while (due := self.group.next_deadline_ms()) is not None and due <= end:
            self.now = max(self.now, due)
            self.group.tick(self.now)
            said += [f"at {format_duration(self.now)} {line}" for line in self._store()]
            assert self.group.next_deadline_ms() != due, "time does not pass"
        self.now = end
        return said or ["nothing"]

    def do_show(self, *_):
        described = self.group.describe(self.topics)
        epochs = f"epoch {described.group_epoch}, target of {described.assignment_epoch}"
        return [
            f"{described.phase}, {epochs}, {described.assignor}",
            *map(self._say_member, described.members),
        ]

    def do_limits(self, _, options):
        self.limits = GroupLimits(**{name: int(value) for name, value in options.items()})
        self.group, self.stored = ConsumerGroup("readers", self.limits, self._new_id), None
        return ["ok"]

    def do_config(self, _, options):
        session, interval = (parse_duration_ms(options[name]) for name in ("session", "interval"))
        self.config = GroupConfig(session_timeout_ms=session, heartbeat_interval_ms=interval)
        return ["ok"]

    def do_restart(self, *_):
        arguments = ("readers", self.limits, self._new_id, self.stored, self.now)
        self.group = ConsumerGroup.restored(*arguments)
        return self.do_show()

    def do_regexes(self, *_):
        resolved = self.group.state.subscriptions.resolved
        return [
            f"{regex}: {' '.join(sorted(names)) or 'nothing'}" for regex, names in sorted(resolved.items())
        ]

    def do_stored(self, *_):
        rows = sorted(self.stored.members.items())
        return [self.stored.state, *(f"{named_row(row, text)} {text}" for row, text in rows)]

    def do_kill(self, *_):
        self.group.kill()
        return ["ok"]

    # -- inside -----------------------------------------------------------------------------------------------

    def _new_id(self, name):
        return f"{name}-{next(self.numbers)}"

    def _beat(self, name, client, epoch, flags, options):
        topics, owned = options.get("topics"), options.get("owned")
        rebalance = options.get("rebalance", "unsaid")
        instance = options.get("instance", client.instance)
        request = ConsumerHeartbeat(
            member_id=options.get("member", client.member_id),
            member_epoch=epoch,
            client_id=name,
            client_host=options.get("host", "here"),
            instance_id=None if "noinstance" in flags else instance,
            rack_id=options.get("rack"),
            rebalance_timeout_ms=-1 if rebalance == "unsaid" else parse_duration_ms(rebalance),
            topic_names=None if topics is None else tuple(each for each in topics.split(",") if each),
            topic_regex=options.get("regex"),
            assignor=options.get("assignor"),
            owned=None if owned in (None, "unsaid") else partitions_of(owned, self.topics),
        )
        can_describe = lambda topic: topic not in self.hidden  # noqa: E731
        response = self.group.heartbeat(request, self.topics, self.config, self.now, can_describe)
        client.member_id, client.epoch = response.member_id, response.member_epoch
        client.topics = client.topics if topics is None else topics
        said = f"{response.member_id}: epoch {response.member_epoch}"
        if response.heartbeat_interval_ms != GroupConfig().heartbeat_interval_ms:
            said += f", beats every {format_duration(response.heartbeat_interval_ms)}"
        if response.assignment is None:
            return [said]
        client.assigned = frozenset(response.assignment)
        assignment = text_of(response.assignment, self.topics)
        return [f"{said}, assigned {assignment}"]

    def _store(self):
        changes = self.group.take_changes()
        if changes is None:
            return []
        former = self.stored or StoredGroup(0, "", {})
        members = {**former.members, **changes.members}
        members = {name: text for name, text in members.items() if text is not None}
        assert changes.is_empty == (not members)
        state = former.state if changes.state is None else changes.state
        self.stored = StoredGroup(changes.epoch, state, members)
        named = [
            named_row(row, text) if text is not None else f"{named_row(row, former.members.get(row))} gone"
            for row, text in changes.members.items()
        ]
        header = [] if changes.state is None else ["group"]
        return [f"stores epoch {changes.epoch}: {', '.join([*header, *named]) or 'nothing else'}"]

    def _say_member(self, member):
        held = self.group.state.members[member.member_id]
        instance = f" as {held.instance_id}" if held.instance_id is not None else ""
        said = [f"{member.member_id}{instance}: {held.state}, epoch {member.member_epoch}"]
        said.append(f"has {self._say_since(held.assigned)}")
        if held.pending:
            said.append(f"gives up {self._say_since(held.pending)}")
        said.append(f"target {text_of(member.target, self.topics)}")
        return "  " + ", ".join(said)

    def _say_since(self, partitions):
        """Partitions by the epoch since which the member has them."""
        by_epoch = defaultdict(list)
        for each, since in partitions.items():
            by_epoch[since].append(each)
        texts = [f"{text_of(found, self.topics)} since {since}" for since, found in sorted(by_epoch.items())]
        return " and ".join(texts) or "none"

    @staticmethod
    def _say_outcome(outcome):
        return "ok" if outcome is None else type(outcome).__name__


def named_row(row, text):
    """A member, or what a regular expression matches."""
    return decode_matches(text)[0] if is_regex_row(row) else row
