"""Mistakes in the machine of consumer groups and in what saves it, each as a text to be replaced, to see whether the
stories, the properties and the unit tests find them.

python -m tests.unit.groups.consumer.machine_mutants [part of a name]     # prints for each mistake how it was found
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.queues.mutants import Mutant

ROOT = Path(__file__).parents[4]
GROUPS = "src/millpond/groups"
TESTS = (
    "tests/transcripts/test_consumer_groups.py",
    "tests/unit/groups/test_consumer_coordinator.py",
    "tests/unit/groups/consumer/test_messages.py",
    "tests/unit/groups/consumer/test_subscriptions.py",
    "tests/unit/groups/consumer/test_topic_regex.py",
    "tests/unit/groups/consumer/test_group_properties.py",
)
COPIED = ("src/millpond", "tests")
AT_A_TIME = 2
SECONDS_MAX = 300
FAILED = 1
"""What pytest returns if tests have failed; other errors are accidents."""


def _reconciliation(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/consumer/reconciliation.py", code, instead, **options)


def _state(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/consumer/state.py", code, instead, **options)


def _group(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/consumer/group.py", code, instead, **options)


def _subscriptions(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/consumer/subscriptions.py", code, instead, **options)


def _classic(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/consumer/classic_members.py", code, instead, **options)


def _migration(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/consumer/migration.py", code, instead, **options)


def _stored(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/consumer/stored.py", code, instead, **options)


def _saver(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/change_saver.py", code, instead, **options)


def _messages(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/consumer/messages.py", code, instead, **options)


def _loaded(name: str, code: str, instead: str = "pass", **options: bool) -> Mutant:
    return Mutant(name, f"{GROUPS}/loaded_groups.py", code, instead, **options)


RECONCILIATION = (
    _reconciliation(
        "no report counts as an empty one",
        "owned is None or not owned.isdisjoint",
        "owned is not None and not owned.isdisjoint",
    ),
    _reconciliation(
        "the epoch rises before partitions are given up",
        "return _waiting(member, kept, revoked)",
        "return _waiting(replace(member, epoch=self.target_epoch), kept, revoked)",
    ),
    _reconciliation(
        "partitions of others are assigned",
        "free = [each for each in missing if self.is_free(each)]",
        "free = list(missing)",
    ),
    _reconciliation(
        "a member that waits is stable",
        "MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED",
        "MemberState.STABLE",
    ),
    _reconciliation(
        "the previous epoch is forgotten",
        "            previous_epoch=member.epoch,\n            assigned=kept |",
        "            assigned=kept |",
    ),
    _reconciliation(
        "what is unsubscribed stays in the target",
        "wanted = self._subscribed(self.target)",
        "wanted = self.target",
        equivalent=True,  # a heartbeat that unsubscribes computes the target first
    ),
    _reconciliation(
        "what is kept is had since the new epoch",
        "assigned=kept | dict.fromkeys(free, self.target_epoch)",
        "assigned=dict.fromkeys([*kept, *free], self.target_epoch)",
    ),
    _reconciliation(
        "unsubscribing while waiting changes nothing",
        "return self._give_up_unsubscribed(member, owned) if self.topics_changed else member",
        "return member",
    ),
    _reconciliation(
        "what is unsubscribed replaces what is pending",
        "pending = {**member.pending, **revoked}",
        "pending = revoked",
    ),
    _reconciliation(
        "a heartbeat that changes nothing is a change",
        "return member if waits_on and after.assigned == member.assigned else after",
        "return after",
    ),
    _reconciliation(
        "nothing waits for a confirmation",
        "or (member.state is MemberState.UNREVOKED and _may_own(owned, member.pending))",
        "",
    ),
)

STATE = (
    _state(
        "pending partitions are free",
        "member.assigned.keys() | member.pending.keys()",
        "member.assigned.keys()",
    ),
    _state(
        "everything is free", "return self._holders.get(partition, member_id) == member_id", "return True"
    ),
    _state("the target of a former member stays", "self.targets.pop(member_id, None)"),
    _state("the session of a former member goes on", "self.sessions.clear(member_id)"),
    _state("a successor loses the target", "self.targets[new_id] = target"),
    _state("the least wanted assignor is used", "return max(ASSIGNORS, key=", "return min(ASSIGNORS, key="),
    _state(
        "an instance is not fenced", "if holder is not None and holder.member_id != member_id:", "if False:"
    ),
    _state(
        "a member is stored only with its group",
        "if changed_header is None and not members:",
        "if changed_header is None:",
    ),
    _state(
        "the group is stored with each of its members",
        "self._stored_header, self._stored_matches = header, dict(",
        "self._stored_matches = dict(",
    ),
    _state("former members stay stored", "complete = self._stored_header is None", "complete = False"),
    _state("classic members are not counted", "self.classic_members += step"),
    _state(
        "an empty group is stable",
        "        if not self.members:\n            return ConsumerGroupPhase.EMPTY\n",
        "",
    ),
    _state("the target's epoch lags", "self.target_epoch = self.epoch", "self.target_epoch = self.epoch - 1"),
    _state(
        "all classic members need not have a protocol in common",
        "self._supporters[each.name] == self.classic_members",
        "self._supporters[each.name] >= 0",
    ),
)

GROUP = (
    _group(
        "any earlier epoch may be repeated",
        "lost_response = epoch < member.epoch and epoch == member.previous_epoch",
        "lost_response = epoch < member.epoch",
    ),
    _group("a repeated request may own anything", " and owned <= member.assigned.keys()", ""),
    _group(
        "a repeated request needs no new connection",
        "owned is None and state.is_connected_again(member.member_id, request.connection)",
        "owned is None",
    ),
    _group(
        "a paused member has no session",
        "state.put(replace(member, epoch=PAUSE_EPOCH, pending={}))",
        "state.put(replace(member, epoch=PAUSE_EPOCH, pending={}))\n            state.sessions.clear(member.member_id)",
    ),
    _group("a paused member keeps what is pending", "epoch=PAUSE_EPOCH, pending={}", "epoch=PAUSE_EPOCH"),
    _group(
        "leaving begins no epoch",
        "            state.remove(member.member_id)\n            state.epoch += 1",
        "            state.remove(member.member_id)",
    ),
    _group("the end of a session begins no epoch", "state.epoch += bool(late)"),
    _group("a removal begins no epoch", "self.state.epoch += removed > 0"),
    _group("heartbeats restart the rebalance timeout", "elif after.pending is not before.pending:", "else:"),
    _group("a confirmation does not end the rebalance timeout", "state.progress.clear(after.member_id)"),
    _group("a pause does not end the rebalance timeout", "state.progress.clear(member.member_id)"),
    _group(
        "heartbeats do not restart sessions",
        "        self.state.sessions.set(member.member_id, now_ms + config.session_timeout_ms)",
        "        if former is None:\n"
        "            self.state.sessions.set(member.member_id, now_ms + config.session_timeout_ms)",
    ),
    _group(
        "rebalance timeouts end with the coordinator",
        "if member.state is MemberState.UNREVOKED and not member.is_paused:",
        "if False:",
    ),
    _group(
        "sessions end with the coordinator",
        "ConsumerGroupState.restored(group_id, limits, stored)\n"
        "        group = cls(group_id, limits, new_id, state)\n        group._start_sessions(now_ms)",
        "ConsumerGroupState.restored(group_id, limits, stored)\n"
        "        group = cls(group_id, limits, new_id, state)",
    ),
    _group(
        "topics that change begin no epoch",
        "if must or (may and state.epoch == state.target_epoch):",
        "if must:",
    ),
    _group("topics that change always begin an epoch", "(may and state.epoch == state.target_epoch)", "may"),
    _group(
        "another assignor begins no epoch",
        "may = may or state.preferred_assignor() != state.assignor",
        "may = bool(may)",
    ),
    _group(
        "a group is never full",
        "if member is None and len(state.members) >= self._limits.members_max:",
        "if False:",
    ),
    _group(
        "an instance is taken from its holder",
        "if holder.classic is None and not holder.is_paused:",
        "if False:",
    ),
    _group(
        "a commit needs the current epoch for what is pending",
        "owned_since = {**member.assigned, **member.pending}",
        "owned_since = member.assigned",
    ),
    _group(
        "a commit may be as old as the member",
        "owned_since.get(each, epoch + 1) <= epoch",
        "each in owned_since",
    ),
    _group(
        "a commit may be ahead",
        "if epoch > member.epoch or member.classic is not None:",
        "if member.classic is not None:",
    ),
    _group(
        "anyone may commit to a group with members",
        "if epoch < 0 and not self.state.members:",
        "if epoch < 0:",
    ),
    _group(
        "offsets may be fetched in earlier epochs",
        "        if epoch != member.epoch:\n            raise self._stale(member, epoch, transactional=False)",
        "        if epoch > member.epoch:\n            raise self._stale(member, epoch, transactional=False)",
    ),
    _group("a repeated request gets no assignment", " or request.member_epoch != before.epoch:", ":"),
    _group("a complete request gets no assignment", "if is_complete or request", "if request"),
    _group(
        "an assignment that changes is not sent",
        "return member.assigned.keys() != before.assigned.keys()",
        "return False",
    ),
    _group(
        "a killed group responds",
        "        if self.state.is_dead:\n            raise",
        "        if False:\n            raise",
    ),
    _group("a downgrade needs no policy", "if is_due and allowed else None", "if is_due else None"),
    _group(
        "a group with new members is downgraded",
        "is_due = 0 < state.classic_members == len(state.members)",
        "is_due = 0 < state.classic_members",
    ),
)

SUBSCRIPTIONS = (
    _subscriptions("a dropped expression stays resolved", "(self.resolved, ", "("),
    _subscriptions("everything may be described", " if may_describe(name))", ")"),
    _subscriptions(
        "expressions are matched in each heartbeat",
        "return now_ms - matched_at_ms >= every_ms",
        "return True",
    ),
    _subscriptions(
        "expressions are matched again only for new topics",
        "self._limits.regex_resolution_every_ms if has_new_topics else self._limits.regex_refresh_ms",
        "self._limits.regex_resolution_every_ms if has_new_topics else 10**12",
    ),
    _subscriptions(
        "topics that change are not noticed", "return changed or self.fingerprint != former", "return changed"
    ),
    _subscriptions("an expression is limited twice", "if regex not in self._regexes and len(", "if len("),
    _subscriptions("members keep the ids of former topics", "self._topic_ids.clear()"),
    _subscriptions(
        "all names are matched in one heartbeat",
        "position < len(matching.names) and work > 0",
        "position < len(matching.names)",
    ),
    _subscriptions(
        "names after the first ones are never matched",
        "if matching.position < len(matching.names):",
        "if False:",
    ),
    _subscriptions("former subscriptions keep their topics", "self._topic_ids.pop(subscription, None)"),
)

MIGRATION = (
    _classic(
        "a member that gives up partitions cannot sync",
        "is_behind = member.epoch < self._next_epoch(now_ms) and member.state is not MemberState.UNREVOKED",
        "is_behind = member.epoch < state.epoch",
    ),
    _classic(
        "a member joins for each partition that is free",
        "return all(state.is_free(member_id, each) for each in missing)",
        "return any(state.is_free(member_id, each) for each in missing)",
    ),
    _classic(
        "a member stays in its epoch",
        "if member.epoch < self._next_epoch(now_ms) or self._has_next_step(member):",
        "if self._has_next_step(member):",
    ),
    _classic(
        "each request to join restarts its time",
        "if member.member_id not in self.state.progress:",
        "if True:",
    ),
    _classic("a sync does not end the time for it", "state.progress.clear(member.member_id)"),
    _classic(
        "an earlier generation is good", "if generation != member.epoch:", "if generation > member.epoch:"
    ),
    _classic("a sync may take for ever", "self._limit(member, now_ms)  # until it syncs"),
    _classic(
        "a classic member may name one of the others",
        "            if member.classic is None:\n                raise",
        "            if False:\n                raise",
    ),
    _migration(
        "two members keep one partition",
        "if not all(state.is_free(member.member_id, partition) for partition in member.assigned):",
        "if False:",
    ),
    _migration("an upgraded group is stored in part", "state.forget_stored()"),
    _migration("data of an assignor are lost", "if assignment.has_user_data and", "if False and"),
    _migration(
        "partitions that never were are assigned",
        "if topic is not None and 0 <= number < topic.partitions:",
        "if topic is not None:",
    ),
    _migration(
        "members whose first join waits are upgraded",
        "if each.member_id not in classic.new_members:",
        "if True:",
    ),
    _migration(
        "generations begin again",
        "Snapshot(state.target_epoch, CONSUMER, members=members)",
        "Snapshot(0, CONSUMER, members=members)",
    ),
)

STORED = (
    _stored(
        "the previous epoch is not stored",
        'previous_epoch=kept["previous_epoch"],',
        'previous_epoch=kept["epoch"],',
    ),
    _stored(
        "pending partitions are not stored", 'pending=_decode_since(kept.get("pending", {})),', "pending={},"
    ),
    _stored("the epochs of partitions are not stored", "each: int(since)", "each: 0"),
    _stored(
        "what expressions match is not stored",
        '"matches": sorted(topics)',
        "",
    ),
    _state(
        "what expressions match is stored again and again", "if stored.get(regex) is not topics:", "if True:"
    ),
    _state("a large group has a target at once", "        self.assigned_at_ms = now_ms\n", ""),
    _state(
        "a large group waits for ever",
        "if last_ms is None or now_ms - last_ms >= limits.target_every_ms:",
        "if last_ms is None:",
    ),
    _state(
        "a small group waits",
        "return len(self.members) * partitions <= limits.instant_target_size_max",
        "return False",
    ),
    _classic(
        "a classic member joins again for a target that is not due",
        "state.epoch if self.state.may_assign(now_ms) else self.state.target_epoch",
        "state.epoch",
    ),
    _state("what former expressions matched stays stored", "stored.keys() - now.keys()", "()"),
    _stored("the topics are not stored", '"topics": header.topics,', ""),
    _stored("the target is not stored", '"target": encode_partitions(target),', ""),
    Mutant(
        "holes in ranges are filled",
        f"{GROUPS}/stored_partitions.py",
        "found[-1][1] == number - 1",
        "found[-1][1] < number",
    ),
    _stored("an instance is not stored", '"instance": member.instance_id,', ""),
    _stored("a choice of assignor is not stored", '"assignor": member.assignor,', ""),
)

SAVING = (
    _saver(
        "a response does not wait for the save", "await asyncio.shield(self._last)", "await asyncio.sleep(0)"
    ),
    _saver("saves overtake each other", "            await each\n", "            pass\n"),
    _saver("a later change replaces an earlier one", "self._unsaved.followed_by(changes)", "changes"),
    _saver("a group goes on after its save has failed", "self._on_failure(error)"),
    _messages(
        "the group is lost when changes are joined",
        "state = self.state if later.state is None else later.state",
        "state = later.state",
    ),
    _messages("joined changes are never complete", "members, self.complete, self.type)", "members)"),
    _loaded(
        "a response does not wait for the changes of others",
        "        await loaded.changes.wait()\n        return response",
        "        return response",
    ),
    _loaded(
        "a group is saved in another order than it changed its protocol",
        "former = (*loaded.changes.in_flight, *loaded.saving)",
        "former = ()",
    ),
    _loaded(
        "a classic group is saved before the group that it continues",
        "await former.wait()  # for the changes of the group before it became a classic one",
        "pass",
    ),
    _loaded(
        "a group that was dropped at once does not exist",
        "while loaded is None and exists:",
        "if loaded is None:",
    ),
    _loaded(
        "members that wait are forgotten by an upgrade",
        "        classic.kill(RebalanceInProgress(group=loaded.ownership.group_id))\n",
        "",
    ),
    Mutant("rows of former members stay", f"{GROUPS}/store.py", "if changes.complete:", "if False:"),
    Mutant(
        "a refused upgrade changes the group",
        f"{GROUPS}/coordinator.py",
        "        response = group.heartbeat(request, topics, config, now_ms, may_describe)\n"
        "        self._loaded_groups.become_consumer(loaded, former, group)",
        "        self._loaded_groups.become_consumer(loaded, former, group)\n"
        "        response = group.heartbeat(request, topics, config, now_ms, may_describe)",
    ),
    Mutant(
        "heartbeats of classic members start no timers",
        f"{GROUPS}/coordinator.py",
        "        finally:  # an error, too, may begin a time limit\n"
        "            self._loaded_groups.perform_effects(loaded)",
        "        finally:\n            pass",
    ),
)

UPGRADING = (
    _migration("an upgraded member gives up at once", "if kept:", "if False:"),
    _migration("the older claim counts", "-claim[1].generation", "claim[1].generation"),
    _migration(
        "a member of a classic group has given up what it was asked for",
        "member.assigned.keys() | member.pending.keys()",
        "member.assigned",
    ),
    _classic("an id that was issued is no member's", "raise self._expect(request, now_ms)"),
    _classic("issued ids are not limited", "if len(expected) >= limit:", "if False:"),
    _classic("issued ids live for ever", "state.expected.take_due(now_ms)", "()"),
    _classic("an id is issued twice", "self.state.expected.clear(member_id)"),
    Mutant(
        "a group that an older broker saved has its former members",
        f"{GROUPS}/store.py",
        "row.members != NO_MEMBERS.get(row.type)",
        "row.type == groups.CLASSIC",
    ),
    Mutant(
        "a member has the error of another one",
        f"{GROUPS}/change_saver.py",
        "isinstance(error, MillpondError) and error.retriable",
        "isinstance(error, MillpondError)",
    ),
)

MUTANTS = (*RECONCILIATION, *STATE, *GROUP, *SUBSCRIPTIONS, *MIGRATION, *STORED, *SAVING, *UPGRADING)


def _tested(root: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )


def found(mutant: Mutant, tests: Sequence[str] = TESTS) -> str | None:
    """How the tests fail; None if they pass."""
    with tempfile.TemporaryDirectory(prefix="millpond-groups-") as folder:
        root = Path(folder)
        for each in COPIED:
            shutil.copytree(ROOT / each, root / each, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copyfile(ROOT / "pyproject.toml", root / "pyproject.toml")
        mutant.apply(root)
        try:
            done = _tested(root, tests)
        except subprocess.TimeoutExpired:
            return "a test does not end"
    assert done.returncode in (0, FAILED), done.stdout + done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return failed[0].split(" - ")[0].rpartition("::")[2] if failed else None


def run(all_mutants: Sequence[Mutant], tests: Sequence[str], chosen: str = "") -> int:
    mutants = [each for each in all_mutants if chosen in each.name]
    missed = 0
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for mutant, how in zip(mutants, pool.map(lambda each: found(each, tests), mutants), strict=True):
            missed += how is None and not mutant.equivalent
            state = "found" if how is not None else "equivalent" if mutant.equivalent else "not found"
            print(f"{state:10} {mutant.name}: {how or ''}", flush=True)
    print(f"{len(mutants)} mistakes, {missed} of them not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(run(MUTANTS, TESTS, *sys.argv[1:]))
