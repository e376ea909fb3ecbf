"""The stage on which stories of share groups (KIP-932) are played: members by name, topics, and time that passes when
told. After each command, what has to be stored is stored, and the story says what that was.

A member remembers its epoch and the topics that it asked for, as real ones do; its name is its member id.

    topics logs=4 other=2 ; 0 deletes one
    join NAME topics=a,b [rack=] [host=] [member=]      beat NAME [epoch=] [topics=] [full] [rack=] [member=]
    leave NAME [member=]     begin ; an epoch without members     remove NAME ; by LeaveGroup
    pass 3s     show     limits name=number…     config session= interval=     restart ; from what is stored     kill
    stored ; as text
"""

from dataclasses import dataclass

from tests.unit.groups.consumer_topics import KnownTopics, text_of

from millpond.groups.classic.messages import LeaveRequest
from millpond.groups.consumer.messages import StoredGroup
from millpond.groups.limits import GroupLimits
from millpond.groups.share.group import ShareGroup
from millpond.groups.share.messages import SHARE, ShareHeartbeat
from millpond.model.errors import MillpondError
from millpond.model.share_groups import ShareGroupConfig
from millpond.model.units import format_duration, parse_duration_ms


@dataclass
class StagedMember:
    epoch: int = 0
    topics: str = ""


class ShareGroupStage:
    def __init__(self):
        self.now = 0
        self.limits = GroupLimits()
        self.config = ShareGroupConfig()
        self.topics = KnownTopics({})
        self.members = {}
        self.stored = None
        self.group = ShareGroup("workers", self.limits)

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

    def do_join(self, flags, options):
        member = self.members[flags[0]] = StagedMember()
        return self._beat(flags[0], member, 0, options)

    def do_beat(self, flags, options):
        name, *rest = flags
        member = self.members[name]
        if "full" in rest:
            options = {"topics": member.topics, **options}
        return self._beat(name, member, int(options.get("epoch", member.epoch)), options)

    def do_leave(self, flags, options):
        return self._beat(flags[0], self.members[flags[0]], -1, options)

    def do_begin(self, *_):
        self.group.begin_empty()
        return ["ok"]

    def do_remove(self, flags, _):
        outcomes = self.group.leave([LeaveRequest(name) for name in flags], self.now)
        return [type(each).__name__ for each in outcomes]

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
        found = self.group.describe(self.topics)
        epochs = f"epoch {found.group_epoch}, target of {found.assignment_epoch}"
        return [f"{found.phase}, {epochs}, {found.protocol}", *map(self._say_member, found.members)]

    def do_limits(self, _, options):
        self.limits = GroupLimits(**{name: int(value) for name, value in options.items()})
        self.group, self.stored = ShareGroup("workers", self.limits), None
        return ["ok"]

    def do_config(self, _, options):
        session, interval = (parse_duration_ms(options[name]) for name in ("session", "interval"))
        self.config = ShareGroupConfig(session_timeout_ms=session, heartbeat_interval_ms=interval)
        return ["ok"]

    def do_restart(self, *_):
        self.group = ShareGroup.restored("workers", self.limits, self.stored, self.now)
        return self.do_show()

    def do_stored(self, *_):
        return [self.stored.state, *(f"{name} {text}" for name, text in sorted(self.stored.members.items()))]

    def do_kill(self, *_):
        self.group.kill()
        return ["ok"]

    # -- inside -----------------------------------------------------------------------------------------------

    def _beat(self, name, member, epoch, options):
        topics = options.get("topics")
        request = ShareHeartbeat(
            member_id=options.get("member", name),
            member_epoch=epoch,
            client_id=name,
            client_host=options.get("host", "here"),
            rack_id=options.get("rack"),
            topic_names=None if topics is None else tuple(each for each in topics.split(",") if each),
        )
        response = self.group.heartbeat(request, self.topics, self.config, self.now)
        member.epoch = response.member_epoch
        member.topics = member.topics if topics is None else topics
        said = f"{response.member_id}: epoch {response.member_epoch}"
        if response.heartbeat_interval_ms != ShareGroupConfig().heartbeat_interval_ms:
            said += f", beats every {format_duration(response.heartbeat_interval_ms)}"
        if response.assignment is None:
            return [said]
        return [f"{said}, reads {text_of(response.assignment, self.topics)}"]

    def _store(self):
        changes = self.group.take_changes()
        if changes is None:
            return []
        assert changes.type == SHARE
        assert changes.complete == (self.stored is None), "only the first changes are everything"
        former = self.stored or StoredGroup(0, "", {}, SHARE)
        members = {**former.members, **changes.members}
        members = {name: text for name, text in members.items() if text is not None}
        assert changes.is_empty == (not members)
        state = former.state if changes.state is None else changes.state
        self.stored = StoredGroup(changes.epoch, state, members, SHARE)
        named = [name if text is not None else f"{name} gone" for name, text in changes.members.items()]
        header = [] if changes.state is None else ["group"]
        return [f"stores epoch {changes.epoch}: {', '.join([*header, *named]) or 'nothing else'}"]

    def _say_member(self, member):
        target = text_of(self.group.state.target(member.member_id), self.topics)
        rack = f" in {member.rack_id}" if member.rack_id is not None else ""
        said = [
            f"{member.member_id}{rack}: epoch {member.member_epoch}",
            f"reads {text_of(member.assigned, self.topics)}",
            f"target {target}",
        ]
        return "  " + ", ".join(said)
