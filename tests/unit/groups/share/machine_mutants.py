"""Mistakes in the machine of share groups, in its assignor and in what is stored, each as a text to be replaced, to see
whether the stories, the properties and the unit tests find them.

python -m tests.unit.groups.share.machine_mutants [part of a name]     # prints for each mistake how it was found
"""

import sys

from tests.queues.mutants import Mutant
from tests.unit.groups.consumer.machine_mutants import GROUPS, run

TESTS = (
    "tests/transcripts/test_share_groups.py",
    "tests/unit/groups/test_share_coordinator.py",
    "tests/unit/groups/share/test_simple_assignor.py",
    "tests/unit/groups/share/test_group_properties.py",
)


def _group(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/share/group.py", code, instead, **options)


def _state(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/share/state.py", code, instead, **options)


def _checks(name: str, code: str, instead: str) -> Mutant:
    return Mutant(name, f"{GROUPS}/share/checks.py", code, instead)


def _stored(name: str, code: str, instead: str = "") -> Mutant:
    return Mutant(name, f"{GROUPS}/share/stored.py", code, instead)


def _assignor(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/share/assignor.py", code, instead, **options)


def _shell(name: str, module: str, code: str, instead: str) -> Mutant:
    return Mutant(name, f"{GROUPS}/{module}.py", code, instead)


GROUP = (
    _group("any epoch is admitted", "not in (member.epoch, member.previous_epoch)", "is None"),
    _group("the previous epoch is not admitted", "(member.epoch, member.previous_epoch)", "(member.epoch,)"),
    _group("a group is never full", "if member is None and len(members) >= limit:", "if False:"),
    _group("a full group refuses its own members", "if member is None and len(members)", "if len(members)"),
    _group("another subscription begins no epoch", "before.topic_names != member.topic_names", "False"),
    _group("topics that change begin no epoch", "topics_changed or before.topic_names", "before.topic_names"),
    _group("the previous epoch is forgotten", "previous_epoch=member.epoch, assigned", "assigned"),
    _group(
        "leaving begins no epoch",
        "        self.state.epoch += 1\n        return Share",
        "        return Share",
    ),
    _group("the end of a session begins no epoch", "self.state.epoch += bool(late)"),
    _group(
        "heartbeats do not restart sessions",
        "        self.state.sessions.set(member.member_id, now_ms",
        "        if request.member_epoch == JOIN_EPOCH:\n"
        "            self.state.sessions.set(member.member_id, now_ms",
    ),
    _group(
        "sessions end with the coordinator",
        "state.sessions.set(member_id, now_ms + state.session_timeout_ms)",
    ),
    _group("a repeated request gets no assignment", "request.member_epoch != before.epoch", "False"),
    _group("a complete request gets no assignment", "return is_complete or ", "return "),
    _group("an assignment that changes is not sent", "member.assigned != before.assigned", "False"),
    _group("a killed group responds", "if self.state.is_dead:", "if False:"),
    _group("positions move under members", "if self.state.members:", "if False:"),
    _group(
        "moving positions begins no epoch", "self.state.epoch += 1\n\n    def leave", "pass\n\n    def leave"
    ),
    _group(
        "a session does not follow its config", "self.state.session_timeout_ms = config.session_timeout_ms"
    ),
    _group("a member without names keeps nothing", "if value is not None}", "}"),
)

STATE = (
    _state("large groups wait for ever", "now_ms - last_ms >= limits.target_every_ms", "False"),
    _state("large groups do not wait", "<= limits.instant_target_size_max", ">= 0"),
    _state("members keep the topics that they had", "self._topic_ids.pop(member.member_id, None)"),
    _state("topics that are new are not read", "            self._topic_ids.clear()", "            pass"),
    _state("the target of a former member stays", "self.targets.pop(member_id, None)"),
    _state("the session of a former member goes on", "self.sessions.clear(member_id)"),
    _state(
        "the topics of a former member stay",
        "self._count(member.topic_names, -1)\n        self.targets",
        "self.targets",
    ),
    _state(
        "former topics of a member stay",
        "self._count(former.topic_names if former is not None else (), -1)",
    ),
    _state("topics that change are not noticed", "return self.fingerprint != former", "return False"),
    _state("topics always change", "return self.fingerprint != former", "return True"),
    _state(
        "a subscription is looked up only once",
        "if topics is self._topics and not self._names_changed:",
        "if topics is self._topics:",
    ),
    _state("the target's epoch lags", "self.target_epoch = self.epoch", "self.target_epoch = self.epoch - 1"),
    _state("an epoch alone is not stored", "and self.epoch == self._stored_epoch", ""),
    _state("a member alone is not stored", "if (is_stored and not self._unstored)", "if is_stored"),
    _state(
        "the group is stored with each of its members",
        "header != self._stored_header else None",
        "True else None",
    ),
    _state("former members stay stored", "complete = self._stored_header is None", "complete = False"),
    _state(
        "a changed target is not stored",
        "                self._unstored.add(member_id)\n        self.target",
        "        self.target",
    ),
    _state("members that are restored are stored again", "state._unstored.clear()\n        state._stored"),
    _state(
        "the epoch is not restored",
        "state.epoch, state.target_epoch = stored.epoch, header",
        "state.target_epoch = header",
    ),
    _state(
        "an empty group is stable",
        "if self.members else ShareGroupPhase.EMPTY",
        "if True else ShareGroupPhase.EMPTY",
    ),
    _state(
        "a dead group keeps its sessions",
        "self.sessions = NamedDeadlines()\n\n    def take",
        "pass\n\n    def take",
    ),
)

CHECKS = (
    _checks(
        "a member id may be longer", "MEMBER_ID_CHARS_MAX: Final = 36", "MEMBER_ID_CHARS_MAX: Final = 37"
    ),
    _checks("a member id may be empty", "0 < len(request.member_id)", "0 <= len(request.member_id)"),
    _checks(
        "a member joins without topics", "and not request.topic_names", "and request.topic_names is None"
    ),
    _checks("there are epochs below -1", "if request.member_epoch < LEAVE_EPOCH", "if False"),
    _checks("a rack id may be empty", 'if request.rack_id == "":', "if False:"),
    _checks("any control character", "if not is_storable_member_id(request.member_id):", "if False:"),
    _checks("any number of topic names", "if len(names) > limits.topic_names_max:", "if False:"),
    _checks("texts of any length", "len(text) > limits.member_text_chars_max", "False"),
)

STORED = (
    _stored("the target is not stored", '"target": encode_partitions(target),'),
    _stored("what a member reads is not stored", '"assigned": encode_partitions(member.assigned),'),
    _stored("the rack is not stored", '"rack": member.rack_id,'),
    _stored("topic names are not stored", '"topics": member.topic_names,'),
    _stored("the fingerprint is not stored", '"topics": header.topics,'),
    _stored(
        "the previous epoch is the epoch",
        '"previous_epoch": member.previous_epoch',
        '"previous_epoch": member.epoch',
    ),
    _stored("the host is not stored", '"host": member.client_host,'),
)

ASSIGNOR = (
    _assignor("partitions are read by one member", "self.sharing = -(-count // size)", "self.sharing = 1"),
    _assignor(
        "quotas are rounded down",
        "bounds = [-(-places * index // count)",
        "bounds = [(places * index // count)",
    ),
    _assignor(
        "a member keeps everything",
        "if surplus > 0:\n            most_read",
        "if False:\n            most_read",
    ),
    _assignor(
        "a partition keeps all readers",
        "if surplus > 0:\n            fullest",
        "if False:\n            fullest",
    ),
    _assignor(
        "nothing is kept",
        "set(had & self.readers.keys()) for had in self.before",
        "set() for had in self.before",
    ),
    _assignor("former partitions are kept", "set(had & self.readers.keys())", "set(had)"),
    _assignor("mixed subscriptions are one pool", "if len(subscriptions) == 1:", "if True:"),
    _assignor("equal subscriptions are many pools", "if len(subscriptions) == 1:", "if False:"),
    _assignor(
        "members in the order of the argument",
        "sorted(members, key=lambda member: member.member_id)",
        "list(members)",
    ),
    _assignor("unknown topics count", "member.topics & known", "member.topics"),
    _assignor(
        "exchanges take what a member had",
        "(each in self.before[member], each, member)",
        "(each not in self.before[member], each, member)",
    ),
    _assignor(
        "members fill up one after the other",
        "unfilled.append(found)",
        "unfilled.insert(0, found)",
        equivalent=True,
    ),
)

SHELL = (
    _shell(
        "a consumer joins a share group",
        "coordinator",
        "        if isinstance(former, ShareGroup):\n            raise UnknownGroup(",
        "        if False:\n            raise UnknownGroup(",
    ),
    _shell(
        "a classic member joins a share group",
        "coordinator",
        "if isinstance(group, ShareGroup):\n            raise InconsistentProtocol",
        "if False:\n            raise InconsistentProtocol",
    ),
    _shell(
        "committed offsets do not matter",
        "coordinator",
        "if await self._has_offsets(group_id):\n                raise _no_share_group(group_id)\n            loaded",
        "loaded",
    ),
    _shell(
        "a stored classic group becomes a share group",
        "loaded_groups",
        "            self._evict(found)\n            found = await self.find(group_id)",
        "            found = None",
    ),
    _shell(
        "a share group is loaded as a consumer group",
        "loaded_groups",
        "elif stored.type == SHARE:",
        "elif False:",
    ),
    _shell(
        "an older broker's group is a share group",
        "store",
        "if row.members != NO_MEMBERS.get(row.type):",
        "if row.type not in NO_MEMBERS:",
    ),
    _shell(
        "a share group is stored as a consumer group",
        "store",
        "kind, text = changes.type, changes.state",
        "kind, text = CONSUMER, changes.state",
    ),
    _shell(
        "empty share groups are forgotten",
        "../catalog/groups",
        "state = 'Empty' AND type <> 'share'",
        "state = 'Empty'",
    ),
)

MUTANTS = (*GROUP, *STATE, *CHECKS, *STORED, *ASSIGNOR, *SHELL)


if __name__ == "__main__":
    sys.exit(run(MUTANTS, TESTS, *sys.argv[1:]))
