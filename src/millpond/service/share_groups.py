"""Share groups: members and positions. Joins the group, which decides who reads what, to its subscriptions, which have
the state of messages.

A member learns what it is assigned only after its topics have subscriptions. An administrator changes the positions of
a group without members. Both exclude each other, by a lock for each group on the broker that coordinates it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from millpond.groups import JOIN_EPOCH, Groups, ShareHeartbeat, ShareHeartbeatResponse
from millpond.log import Log
from millpond.model.errors import UnknownGroup
from millpond.model.group_configs import GroupConfig
from millpond.model.ids import TopicId
from millpond.model.topics import Topic
from millpond.queues import SharePosition, ShareSubscriptions


@dataclass(frozen=True, slots=True)
class TopicPositions:
    """The positions of a share group in a topic, by partition. Partitions without one are not initialized."""

    topic: Topic
    positions: Mapping[int, SharePosition]


class ShareGroups:
    """`config_of` returns the config of a group."""

    def __init__(
        self,
        log: Log,
        groups: Groups,
        subscriptions: ShareSubscriptions,
        config_of: Callable[[str], GroupConfig],
    ) -> None:
        self._log = log
        self._groups = groups
        self._subscriptions = subscriptions
        self._config_of = config_of
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # -- members ----------------------------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatResponse:
        """A member joins, reports that it is alive, or leaves. If this fails after the group has changed, the member
        gets the same assignment when it tries again."""
        names = request.topic_names or ()
        if request.member_epoch == JOIN_EPOCH and not all(map(self._log.topics.knows, names)):
            await self._log.catch_up()  # another broker may have created a topic a moment ago
        response = await self._groups.share_heartbeat(group_id, request)
        if response.assignment is not None:
            topics = [self._log.topics.named(name) for name in self._known(response.topic_names)]
            async with self._lock(group_id):
                await self._subscriptions.ensure(group_id, topics, self._config_of(group_id).share)
        return response

    # -- positions --------------------------------------------------------------------------------------------

    async def positions(self, group_id: str, names: Sequence[str] | None = None) -> dict[str, TopicPositions]:
        """By the names of topics; without `names`, in all topics in which the group has a position. Topics that do not
        exist are left out."""
        await self._groups.check_share_group(group_id)
        subscriptions = {each.topic_id: each for each in await self._subscriptions.of_group(group_id)}
        topics = self._log.topics
        if names is None:
            wanted = [topics.with_id(topic_id) for topic_id in subscriptions if topics.knows_id(topic_id)]
        else:
            wanted = [topics.named(name) for name in self._known(names)]
        found: dict[str, TopicPositions] = {}
        for topic in sorted(wanted, key=lambda each: each.name):
            stored = subscriptions.get(topic.id)
            positions = await self._subscriptions.positions(stored) if stored is not None else []
            found[topic.name] = TopicPositions(topic, {each.partition: each for each in positions})
        return found

    async def move(
        self, group_id: str, offsets: Mapping[str, Mapping[int, int]]
    ) -> dict[str, frozenset[int]]:
        """Begin at other offsets, by topic and partition. The group may be new, and must have no members. Returns the
        partitions that have moved: those that exist."""
        async with self._lock(group_id):
            await self._groups.begin_empty_share_group(group_id)
            return {name: await self._move(group_id, name, offsets[name]) for name in self._known([*offsets])}

    async def _move(self, group_id: str, name: str, offsets: Mapping[int, int]) -> frozenset[int]:
        topic = self._log.topics.named(name)
        known = {number: offset for number, offset in offsets.items() if 0 <= number < topic.partitions}
        stored = await self._subscriptions.find(group_id, topic)
        if stored is None and known:
            config = self._config_of(group_id).share
            await self._subscriptions.ensure(group_id, [topic], config, {topic.id: known})
        elif stored is not None and known:
            await self._subscriptions.move(stored, known)
        return frozenset(known)

    async def forget(self, group_id: str, names: Sequence[str]) -> dict[str, TopicId]:
        """Forget positions in topics. The group must have no members. Returns the ids of the topics in which it had a
        position."""
        async with self._lock(group_id):
            if not await self._groups.check_share_group(group_id, empty=True):
                raise UnknownGroup(group=group_id)
            subscriptions = {each.topic_id: each for each in await self._subscriptions.of_group(group_id)}
            topics = [self._log.topics.named(name) for name in self._known(names)]
            forgotten = {topic.name: topic.id for topic in topics if topic.id in subscriptions}
            for topic_id in forgotten.values():
                await self._subscriptions.delete(subscriptions[topic_id])
        return forgotten

    async def delete_group(self, group_id: str) -> None:
        """Delete a group of any type. A share group then loses its subscriptions, and with them its positions: not
        before, because a group with members keeps them. Those of a share group that is gone already are deleted, too.
        """
        async with self._lock(group_id):
            has_positions = await self._is_share_group_or_gone(group_id)
            is_gone = False
            try:
                await self._groups.delete_group(group_id)
            except UnknownGroup:
                is_gone = True
            subscriptions = await self._subscriptions.of_group(group_id) if has_positions else []
            if is_gone and not subscriptions:
                raise UnknownGroup(group=group_id)
            for each in subscriptions:
                await self._subscriptions.delete(each)

    async def _is_share_group_or_gone(self, group_id: str) -> bool:
        try:
            await self._groups.check_share_group(group_id)
        except UnknownGroup:  # it is of another type
            return False
        return True

    # -- internals --------------------------------------------------------------------------------------------

    def _known(self, names: Sequence[str]) -> list[str]:
        return [name for name in dict.fromkeys(names) if self._log.topics.knows(name)]

    def _lock(self, group_id: str) -> asyncio.Lock:
        return self._locks.setdefault(group_id, asyncio.Lock())
