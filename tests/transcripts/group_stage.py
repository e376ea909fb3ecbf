"""The stage on which stories of groups are played: clients by name, time that passes when told, saves on demand.

A client remembers the member id and generation it was last told, as real ones do, and how it joined; `fresh` makes
it forget its id.

    join NAME [fresh] [old] [noskip] [member=] [instance=] [type=] [protocols=range:meta,…] [session=] [rebalance=]
    sync NAME [assign=ID:WORK,…] [member=] [instance=] [generation=] [type=] [protocol=]
    heartbeat NAME [member=] [instance=] [generation=]       commit NAME … [txn]; NAME `nobody` has no membership
    leave NAME… | leave instance=                            pass 3s     show     limits name=number…
    saves wait | saves succeed | saves fail                  restart coordinator | kill
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count

from millpond.groups.classic.group import ClassicGroup
from millpond.groups.classic.members import Protocol
from millpond.groups.classic.messages import (
    GroupResponse,
    Joined,
    JoinRequest,
    LeaveRequest,
    SaveSnapshot,
    Synced,
    SyncRequest,
)
from millpond.groups.limits import GroupLimits
from millpond.model.errors import CatalogUnavailable, MemberIdRequired, MillpondError
from millpond.model.units import format_duration, parse_duration_ms


def _limits(**limits):
    """Stories pass seconds: the delay is Kafka's, unless a story sets another."""
    return GroupLimits(**{"initial_rebalance_delay_ms": 3_000, **limits})


@dataclass
class Client:
    member_id: str = ""
    generation: int = -1
    options: dict = field(default_factory=dict)


class GroupStage:
    def __init__(self):
        self.now = 0
        self.limits = _limits()
        self.numbers = count(1)
        self.tickets = count()
        self.names = {}
        self.clients = defaultdict(Client)
        self.saves_wait = False
        self.unsaved = []
        self.stored = None
        self.group = self._new_group()

    def perform(self, command):
        verb, *words = command.split()
        flags = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        return getattr(self, f"do_{verb}")(flags, options)

    # -- commands ---------------------------------------------------------------------------------------------

    def do_join(self, flags, options):
        name = flags.pop(0)
        client = self.clients[name]
        if "fresh" in flags:
            client.member_id = ""
        client.options |= options
        options = client.options | {"member": options.get("member", client.member_id)}
        protocols = [each.partition(":") for each in options.get("protocols", "range:").split(",") if each]
        request = JoinRequest(
            member_id=options["member"],
            client_id=name,
            client_host="here",
            session_timeout_ms=parse_duration_ms(options.get("session", "10s")),
            rebalance_timeout_ms=parse_duration_ms(options.get("rebalance", "60s")),
            protocol_type=options.get("type", "consumer"),
            protocols=[Protocol(each, metadata.encode()) for each, _, metadata in protocols],
            instance_id=options.get("instance") or None,
            require_known_id="old" not in flags,
            can_skip_assignment="noskip" not in flags,
        )
        return self._ask(name, lambda ticket: self.group.join(request, ticket, self.now))

    def do_sync(self, flags, options):
        [name] = flags
        client = self.clients[name]
        pairs = [pair.split(":") for pair in options.get("assign", "").split(",") if pair]
        request = SyncRequest(
            member_id=options.get("member", client.member_id),
            generation=int(options.get("generation", client.generation)),
            instance_id=options.get("instance"),
            protocol_type=options.get("type"),
            protocol=options.get("protocol"),
            assignments={member: work.encode() for member, work in pairs},
        )
        return self._ask(name, lambda ticket: self.group.sync(request, ticket, self.now))

    def do_heartbeat(self, flags, options):
        member_id, instance_id, generation = self._identity(flags[0], options)
        return self._try(lambda: self.group.heartbeat(member_id, instance_id, generation, self.now))

    def do_commit(self, flags, options):
        identity = self._identity(flags[0], options)
        transactional = "txn" in flags
        return self._try(lambda: self.group.check_commit(*identity, self.now, transactional=transactional))

    def do_leave(self, flags, options):
        instance_id = options.get("instance")
        leaving = [
            LeaveRequest(options.get("member", self.clients[name].member_id), instance_id) for name in flags
        ]
        outcomes = self.group.leave(leaving or [LeaveRequest("", instance_id)], self.now)
        said = ["ok" if outcome is None else type(outcome).__name__ for outcome in outcomes]
        return said + self._effects()

    def do_pass(self, flags, _):
        end = self.now + parse_duration_ms(flags[0])
        said = []
        while (due := self.group.next_deadline_ms()) is not None and due <= end:
            self.now = max(self.now, due)
            self.group.tick(self.now)
            said += [f"at {format_duration(self.now)} {line}" for line in self._effects()]
            assert self.group.next_deadline_ms() != due, "time does not pass"
        self.now = end
        return said or ["nothing"]

    def do_show(self, *_):
        group = self.group
        members = ", ".join(map(self._say_member, group.state.roster)) or "nobody"
        led = f", led by {group.state.leader}" if group.state.leader else ""
        return [f"{group.state.phase} generation {group.state.generation}: {members}{led}"]

    def do_limits(self, _, options):
        self.limits = _limits(**{name: int(value) for name, value in options.items()})
        self.group = self._new_group()
        return ["ok"]

    def do_saves(self, flags, _):
        self.saves_wait = flags == ["wait"]
        error = CatalogUnavailable(reason="away") if flags == ["fail"] else None
        unsaved, self.unsaved = self.unsaved, []
        for save in [] if self.saves_wait else unsaved:
            self._save(save, error)
        return self._effects() or ["ok"]

    def do_restart(self, *_):
        self.group = self._new_group()
        if self.stored is not None:
            arguments = (self.group.state.group_id, self.limits, self._new_id, self.stored, self.now)
            self.group = ClassicGroup.restored(*arguments)
        return self.do_show()

    def do_kill(self, *_):
        self.group.kill()
        return self._effects() or ["ok"]

    # -- inside -----------------------------------------------------------------------------------------------

    def _new_group(self):
        return ClassicGroup("readers", self.limits, self._new_id)

    def _new_id(self, name):
        return f"{name}-{next(self.numbers)}"

    def _identity(self, name, options):
        client = self.clients[name]
        generation = int(options.get("generation", client.generation))
        return options.get("member", client.member_id), options.get("instance"), generation

    def _ask(self, name, event):
        ticket = next(self.tickets)
        self.names[ticket] = name
        event(ticket)
        said = self._effects()
        return [f"{name} waits", *said] if ticket in self.names else said

    def _try(self, event):
        try:
            event()
        except MillpondError as error:
            return [type(error).__name__, *self._effects()]
        return ["ok", *self._effects()]

    def _effects(self):
        said = []
        while effects := self.group.take_effects():
            for effect in effects:
                said.append(self._say(effect))
                if isinstance(effect, SaveSnapshot):
                    self.unsaved.append(effect)
                    if not self.saves_wait:
                        self._save(self.unsaved.pop(), None)
        return said

    def _save(self, save, error):
        if error is None:
            self.stored = save.snapshot
        self.group.saved(save, error, self.now)

    def _say(self, effect):
        match effect:
            case GroupResponse(ticket, outcome):
                name = self.names.pop(ticket)  # a second answer to the same request fails here
                return f"{name}: {self._say_outcome(self.clients[name], outcome)}"
            case SaveSnapshot(snapshot):
                state = "Stable" if snapshot.members else "Empty"
                given = [f"{each.member_id}:{each.assignment.decode()}" for each in snapshot.members]
                return f"save {state} generation {snapshot.generation} [{', '.join(given)}]"

    def _say_member(self, member):
        metadata = b"|".join(each.metadata for each in member.protocols).decode()
        return f"{member.member_id} ({metadata})" if metadata else member.member_id

    def _say_outcome(self, client, outcome):
        match outcome:
            case Joined():
                client.member_id, client.generation = outcome.member_id, outcome.generation
                members = [f"{m.member_id}:{m.metadata(outcome.protocol).decode()}" for m in outcome.members]
                leads = f"leads [{', '.join(members)}]" if members else f"follows {outcome.leader}"
                skips = ", assigns nothing" if outcome.skip_assignment else ""
                return (
                    f"joined generation {outcome.generation} as {outcome.member_id}, {outcome.protocol}, "
                    f"{leads}{skips}"
                )
            case Synced():
                return f"synced {outcome.protocol_type}/{outcome.protocol} {outcome.assignment.decode()!r}"
            case MemberIdRequired(facts={"member_id": member_id}):
                client.member_id = member_id
                return f"MemberIdRequired {member_id}"
            case _:
                return type(outcome).__name__
