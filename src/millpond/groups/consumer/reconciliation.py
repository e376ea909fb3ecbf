"""How one member moves from the partitions that it has to those of its target.

The member first gives up what its target does not have. Only when it has confirmed that, it advances to the target's
epoch and receives what no other member has. So a partition has one owner at a time, and no member waits for another
one, except for the partitions that it still holds.

`owned` is what the member reports to own, None if it does not report. A member that does not report may own anything
that it was ever assigned: only a report without a partition confirms that it was given up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from millpond.groups.consumer.members import ConsumerMember, MemberState
from millpond.model.ids import TopicId, TopicPartition

Owned = frozenset[TopicPartition] | None


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """`topics` are those that the member subscribes to. `is_free` returns whether no other member has a partition or
    was asked to give it up."""

    target: frozenset[TopicPartition]
    target_epoch: int
    topics: frozenset[TopicId]
    topics_changed: bool
    is_free: Callable[[TopicPartition], bool]

    def step(self, member: ConsumerMember, owned: Owned) -> ConsumerMember:
        """Returns the member after the step; the same object if nothing has changed."""
        has_target = member.is_settled(self.target_epoch)
        if has_target or (member.state is MemberState.UNREVOKED and _may_own(owned, member.pending)):
            return self._give_up_unsubscribed(member, owned) if self.topics_changed else member
        return self._approach(member, owned)

    def _approach(self, member: ConsumerMember, owned: Owned) -> ConsumerMember:
        wanted = self._subscribed(self.target)
        kept = {each: since for each, since in member.assigned.items() if each in wanted}
        revoked = {each: since for each, since in member.assigned.items() if each not in wanted}
        if _may_own(owned, revoked):
            return _waiting(member, kept, revoked)
        missing = [each for each in wanted if each not in kept]
        free = [each for each in missing if self.is_free(each)]
        after = replace(
            member,
            state=MemberState.STABLE if len(free) == len(missing) else MemberState.UNRELEASED,
            epoch=self.target_epoch,
            previous_epoch=member.epoch,
            assigned=kept | dict.fromkeys(free, self.target_epoch),
            pending={},
        )
        waits_on = after.state is member.state and after.epoch == member.epoch
        return member if waits_on and after.assigned == member.assigned else after

    def _give_up_unsubscribed(self, member: ConsumerMember, owned: Owned) -> ConsumerMember:
        """The target of an earlier subscription may still have topics that the member has just unsubscribed from."""
        kept = {each: since for each, since in member.assigned.items() if each.topic_id in self.topics}
        if len(kept) == len(member.assigned):
            return member
        revoked = {each: since for each, since in member.assigned.items() if each not in kept}
        pending = {**member.pending, **revoked}
        if _may_own(owned, pending):
            return _waiting(member, kept, pending)
        return replace(member, previous_epoch=member.epoch, assigned=kept, pending={})

    def _subscribed(self, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        if {each.topic_id for each in partitions} <= self.topics:
            return partitions
        return frozenset(each for each in partitions if each.topic_id in self.topics)


def _waiting(
    member: ConsumerMember, kept: Mapping[TopicPartition, int], pending: Mapping[TopicPartition, int]
) -> ConsumerMember:
    return replace(
        member, state=MemberState.UNREVOKED, previous_epoch=member.epoch, assigned=kept, pending=pending
    )


def _may_own(owned: Owned, partitions: Mapping[TopicPartition, int]) -> bool:
    return bool(partitions) and (owned is None or not owned.isdisjoint(partitions))
