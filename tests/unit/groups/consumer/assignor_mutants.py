"""Mistakes in the assignors, each as a text to be replaced, to see whether the checks of `assignor_model.py` find them.

python -m tests.unit.groups.consumer.assignor_mutants     # prints for each mistake how it was found
"""

import importlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.queues.mutants import Mutant
from tests.unit.groups.consumer.assignor_model import MEDIUM, arbitrary, check, histories

from millpond.groups.consumer.assignors import Assign

ROOT = Path(__file__).parents[4]
PACKAGE = "millpond.groups.consumer.assignors"
FOLDER = f"src/{PACKAGE.replace('.', '/')}"
COPY = "mutated_assignors"
SEEDS = 400
"""Of histories and of arbitrary groups, before a mistake counts as not found."""


def _members(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, f"{FOLDER}/members.py", code, instead)


def _ranges(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, f"{FOLDER}/ranges.py", code, instead)


def _uniform(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, f"{FOLDER}/uniform.py", code, instead)


def _mixed(name: str, code: str, instead: str = "pass") -> Mutant:
    return Mutant(name, f"{FOLDER}/uniform_mixed.py", code, instead)


MUTANTS = (
    # subscribers
    _members(
        "subscribers of a topic are in the order of their subscriptions",
        "sorted(index for number in numbers for index in groups[number])",
        "[index for number in numbers for index in groups[number]]",
    ),
    _members("a topic that does not exist has subscribers", "topics & partitions.keys()", "topics"),
    _members(
        "only the first subscription to a topic counts",
        "groups_of.setdefault(topic_id, []).append(number)",
        "groups_of.setdefault(topic_id, [number])",
    ),
    _members(
        "only the first member of a subscription counts",
        "with_subscription.setdefault(member.topics, []).append(index)",
        "with_subscription.setdefault(member.topics, [index])",
    ),
    # range
    _ranges("range: members in the order of the argument", "sorted(members, key=_range_order)", "members"),
    _ranges("range: members by id", "sorted(members, key=_range_order)", "sorted(members)"),
    _ranges("range: dynamic members first", "return True, member.member_id", "return False, ''"),
    _ranges(
        "range: static members by member id",
        "return False, member.instance_id",
        "return False, member.member_id",
    ),
    _ranges(
        "range: the last members get one more", "(index < extras)", "(index >= len(subscribers) - extras)"
    ),
    _ranges("range: one member too many gets one more", "(index < extras)", "(index <= extras)"),
    _ranges("range: every range starts at 0", "start, end = end, end +", "start, end = 0, end +"),
    _ranges(
        "range: a partition is lost between ranges", "range(start, end)", "range(start + (start > 2), end)"
    ),
    _ranges(
        "range: members without a range are left out of the count",
        "subscribers[:count]",
        "subscribers[: count - 1]",
    ),
    # uniform, equal subscriptions
    _uniform(
        "uniform: members in the order of the argument",
        "members = sorted(members)",
        "members = list(members)",
    ),
    _uniform("uniform: topics in the order of the argument", "in sorted(topics)", "in partitions"),
    _uniform("uniform: nothing is kept", "still = member.target & unowned", "still = frozenset()"),
    _uniform("uniform: a partition can be kept twice", "        unowned -= still\n", ""),
    _uniform(
        "uniform: what no longer exists is kept",
        "held.append(still if len(still) < len(member.target) else member.target)",
        "held.append(member.target)",
    ),
    _uniform("uniform: surplus is lost", "surplus += ordered[quota:]"),
    _uniform("uniform: surplus is in two targets", "kept[index] = frozenset(ordered[:quota])"),
    _uniform(
        "uniform: what is kept depends on hashes",
        "ordered = sorted(kept[index])",
        "ordered = list(kept[index])[::-1]",
    ),
    _uniform("uniform: the first members take the extra partitions", "(size > quota or must_take)", "True"),
    _uniform(
        "uniform: extra partitions stay where they are only by chance",
        "(size > quota or must_take)",
        "must_take",
    ),
    _uniform("uniform: extra partitions are left over", "(size > quota or must_take)", "size > quota"),
    _uniform("uniform: everyone may have an extra partition", "extras -= takes"),
    _uniform(
        "uniform: extra partitions are taken too early",
        "len(sizes) - index <= extras",
        "len(sizes) - index <= extras + 1",
    ),
    _uniform(
        "uniform: extra partitions are taken too late",
        "len(sizes) - index <= extras",
        "len(sizes) - index < extras",
    ),
    _uniform(
        "uniform: members that have the quota want an extra partition", "size > quota or", "size >= quota or"
    ),
    _uniform(
        "uniform: subscriptions are compared with topics that do not exist",
        "frozenset(topics) for topics in existing.values()",
        "frozenset(topics) for topics in existing",
    ),
    _uniform("uniform: mixed subscriptions count as equal", "if len(subscriptions) == 1:", "if True:"),
    # uniform, mixed subscriptions
    _mixed(
        "mixed: nothing is kept", "if partition < len(owners) and owners[partition] == FREE:", "if False:"
    ),
    _mixed(
        "mixed: what is not subscribed is kept",
        "self._owners.get(topic_id, []) if topic_id in member.topics else []",
        "self._owners.get(topic_id, [])",
    ),
    _mixed("mixed: partitions that no longer exist stop everything", "partition < len(owners) and", ""),
    _mixed("mixed: the last owner keeps a partition", "and owners[partition] == FREE:", ":"),
    _mixed(
        "mixed: what is kept is no load",
        "                self._loads[index] += 1\n",
        "                pass\n",
    ),
    _mixed(
        "mixed: a member that loses a topic is unchanged",
        "            else:\n                self._changed.add(index)",
        "            else:\n                pass",
    ),
    _mixed(
        "mixed: topics by partitions",
        "-partitions[topic_id] / len(self._subscribers[topic_id])",
        "-partitions[topic_id]",
    ),
    _mixed(
        "mixed: topics with few partitions per subscriber first",
        "-partitions[topic_id] / len",
        "partitions[topic_id] / len",
    ),
    _mixed(
        "mixed: topics with many subscribers first",
        "                len(self._subscribers[topic_id]),",
        "                -len(self._subscribers[topic_id]),",
    ),
    _mixed(
        "mixed: topics in the order of the argument",
        "                topic_id,\n            ),",
        "            ),",
    ),
    _mixed(
        "mixed: free partitions go to members in turn",
        "sorted(self._subscribers[topic_id], key=self._loads.__getitem__)",
        "list(self._subscribers[topic_id])",
    ),
    _mixed("mixed: nothing moves", "balancing.balance()"),
    _mixed("mixed: topics are balanced once", "range(ROUNDS_MAX)", "range(1)"),
    _mixed(
        "mixed: partitions move for no better balance",
        "loads[giver] - loads[taker] <= 1:",
        "loads[giver] - loads[taker] <= 0:",
    ),
    _mixed(
        "mixed: differences of two stay",
        "loads[giver] - loads[taker] <= 1:",
        "loads[giver] - loads[taker] <= 2:",
    ),
    _mixed(
        "mixed: topics that differ by two stay", "min(subscriber_loads) <= 1:", "min(subscriber_loads) <= 2:"
    ),
    _mixed("mixed: the first partition moves", "owned[giver].pop()", "owned[giver].pop(0)"),
    _mixed(
        "mixed: balancing stops at the first balanced topic", "if balanced == len(topics):", "if balanced:"
    ),
    _mixed(
        "mixed: balancing stops one topic too early",
        "if balanced == len(topics):",
        "if balanced == len(topics) - 1:",
    ),
    _mixed(
        "mixed: topics with two subscribers are not balanced",
        "len(self._subscribers[topic_id]) > 1]",
        "len(self._subscribers[topic_id]) > 2]",
    ),
    _mixed("mixed: the giver's load stays", "self._loads[giver] -= 1"),
    _mixed("mixed: the giver is unchanged", "self._changed.add(giver)"),
    _mixed("mixed: the taker is unchanged", "self._changed.add(taker)"),
    _mixed("mixed: the owner stays", "owners[partition] = taker"),
    _mixed(
        "mixed: takers with more partitions never get any",
        "while end < len(order) and loads[order[end]] == level:",
        "while end < 1:",
    ),
    _mixed("mixed: takers in reverse", "yield from order[:end]", "yield from order[:end][::-1]"),
    _mixed("mixed: givers in reverse", "range(end - 1, start - 1, -1)", "range(start, end)"),
    _mixed(
        "mixed: only the most loaded member gives",
        "while start > 0 and loads[order[start - 1]] == level:",
        "while start == end:",
    ),
    _mixed(
        "mixed: members with nothing to give keep their place",
        "                order[position], order[end] = order[end], member",
        "                order.insert(end, order.pop(position))",
    ),
    _mixed(
        "mixed: givers stop at the first that has nothing",
        "                end -= 1\n",
        "                return\n",
    ),
)


def mutated(mutant: Mutant, folder: Path) -> Mapping[str, Assign]:
    """The assignors with the mistake, from a copy of the package under another name."""
    (folder / FOLDER).parent.mkdir(parents=True)
    shutil.copytree(ROOT / FOLDER, folder / FOLDER, ignore=shutil.ignore_patterns("__pycache__"))
    mutant.apply(folder)
    for path in (folder / FOLDER).glob("*.py"):
        path.write_text(path.read_text().replace(PACKAGE, COPY))
    shutil.move(folder / FOLDER, folder / COPY)
    for name in [name for name in sys.modules if name.partition(".")[0] == COPY]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        assignors: Mapping[str, Assign] = importlib.import_module(COPY).ASSIGNORS
    finally:
        sys.path.remove(str(folder))
    return assignors


def found(assignors: Mapping[str, Assign]) -> str | None:
    """How the checks fail; None if they pass."""
    for seed in range(SEEDS):
        for name, assign in assignors.items():
            try:
                for group in [*histories(seed, assign), *histories(seed, assign, MEDIUM), arbitrary(seed)]:
                    check(name, assign, group)
            except Exception as error:  # noqa: BLE001  # a mistake may show in whatever way
                return f"{name}, seed {seed}: {type(error).__name__} {error}".split("\n")[0]
    return None


def main(chosen: str = "") -> int:
    missed = 0
    for mutant in [each for each in MUTANTS if chosen in each.name]:
        with tempfile.TemporaryDirectory(prefix="millpond-assignors-") as folder:
            how = found(mutated(mutant, Path(folder)))
        missed += how is None and not mutant.equivalent
        state = "found" if how is not None else "equivalent" if mutant.equivalent else "not found"
        print(f"{state:10} {mutant.name}: {how or ''}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
