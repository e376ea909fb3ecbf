"""The members of a group: by id, static ones also by instance, and how many support each protocol."""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Protocol(NamedTuple):
    """An assignment strategy and the member's metadata for it. The coordinator does not parse the metadata."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`protocols` are in order of preference, each name once."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    instance_id: str | None = None
    assignment: bytes = b""

    def metadata(self, protocol: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        return next(each.name for each in self.protocols if each.name in candidates)


class Roster:
    """The members, in the order in which they joined. Lookups that every request needs do not scan the members."""

    def __init__(self) -> None:
        self._members: dict[str, GroupMember] = {}
        self._instances: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[GroupMember]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> GroupMember:
        return self._members[member_id]

    def put(self, member: GroupMember) -> None:
        """Add a member, or replace the one of the same id."""
        former = self._members.get(member.member_id)
        if former is not None:
            self._count(former, -1)
        self._members[member.member_id] = member
        self._count(member, 1)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> GroupMember:
        member = self._members.pop(member_id)
        self._count(member, -1)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        return member

    def first(self) -> str | None:
        return next(iter(self._members), None)

    def holder(self, instance_id: str | None) -> str | None:
        """The id of the member that has this instance id."""
        return None if instance_id is None else self._instances.get(instance_id)

    def all_support_one_of(self, protocols: Collection[Protocol]) -> bool:
        return any(self._supporters[each.name] == len(self) for each in protocols)

    def elect_protocol(self) -> str:
        """Of the protocols that all members support, the one that most members prefer."""
        candidates = {name for name, supporters in self._supporters.items() if supporters == len(self)}
        votes = Counter(member.vote(candidates) for member in self._members.values())
        return votes.most_common(1)[0][0]

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self._members.values()), default=0)

    def _count(self, member: GroupMember, step: int) -> None:
        for each in member.protocols:
            self._supporters[each.name] += step
            if not self._supporters[each.name]:
                del self._supporters[each.name]
