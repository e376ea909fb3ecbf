"""The group coordinator: every request of a member or an administrator, independent of the wire format.

Membership is decided in memory and saved before members receive the response. Offsets are in the catalog when the call
returns. Both are written only while this broker owns the group's shard.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from millpond.catalog import groups as catalog
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.groups import GroupOffset
from millpond.groups.classic.group import ClassicGroup, NewId
from millpond.groups.classic.messages import (
    Description,
    GroupPhase,
    Joined,
    JoinRequest,
    LeaveRequest,
    Synced,
    SyncRequest,
)
from millpond.groups.consumer.group import ConsumerGroup
from millpond.groups.consumer.messages import (
    JOIN_EPOCH,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
)
from millpond.groups.consumer.subscriptions import MayDescribe
from millpond.groups.consumer_protocol import CONSUMER
from millpond.groups.limits import GroupLimits
from millpond.groups.loaded_groups import AnyGroup, LoadedGroup, LoadedGroups
from millpond.groups.share.group import ShareGroup
from millpond.groups.share.messages import (
    SHARE,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatResponse,
)
from millpond.groups.store import GroupStore
from millpond.groups.subscribable_topics import CurrentTopics
from millpond.log import CatalogRole
from millpond.model.clock import Clock
from millpond.model.errors import (
    GroupInUse,
    GroupNotEmpty,
    GroupSubscribed,
    IllegalGeneration,
    InconsistentProtocol,
    MillpondError,
    NotCoordinator,
    OffsetMetadataTooLarge,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)
from millpond.model.group_configs import GroupConfig
from millpond.model.group_ids import check_group_id, check_storable_group_id, new_member_id
from millpond.model.ids import Session, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitSender:
    """The sender of an offset commit or a heartbeat. The default is a consumer that is not a member of the group and
    chooses its own partitions. `generation` is the epoch of a member of the consumer protocol."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


NO_MEMBER = CommitSender()


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """The offsets of a group. For the partitions in `unstable`, an open transaction has offsets that are not
    committed."""

    offsets: Mapping[TopicPartition, GroupOffset]
    unstable: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    type: str = catalog.CLASSIC


def _default_config(_: str) -> GroupConfig:
    return GroupConfig()


class Groups:
    """The groups whose shards this broker owns. `epoch_of` returns the epoch under which it owns a shard; None if it
    does not. `config_of` returns the config of a group. `trusts_clock` returns whether data may be deleted by age. One
    method for each request, so there are more than 20."""

    def __init__(
        self,
        log: CatalogRole,
        session: Session,
        epoch_of: Callable[[int], int | None],
        *,
        clock: Clock,
        limits: GroupLimits,
        new_id: NewId = new_member_id,
        config_of: Callable[[str], GroupConfig] = _default_config,
        trusts_clock: Callable[[], bool] = lambda: True,
    ) -> None:
        self._log = log
        self._clock = clock
        self._limits = limits
        self._new_id = new_id
        self._config_of = config_of
        self._trusts_clock = trusts_clock
        self._store = GroupStore(log, session, epoch_of, clock)
        self._topics = CurrentTopics(log.topics)
        self._loaded_groups = LoadedGroups(
            self._store, self._topics, clock=clock, limits=limits, new_id=new_id
        )

    # -- members ----------------------------------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> Joined:
        """Returns when the next generation exists, which may take as long as its slowest member. In a group of the
        consumer protocol a member gets its own generation at once."""
        check_group_id(group_id)
        if request.member_id:
            loaded = await self._find_for_member(group_id, request.member_id)
        else:
            loaded = await self._loaded_groups.find_or_add(group_id)
        group = loaded.group
        if isinstance(group, ShareGroup):
            raise InconsistentProtocol(f"Group {group_id!r} is a share group.", group=group_id)
        if isinstance(group, ConsumerGroup) and (snapshot := group.empty_snapshot()) is not None:
            group = self._loaded_groups.become_classic(loaded, group, snapshot)
        if isinstance(group, ConsumerGroup):
            return await self._join_consumer_group(loaded, group, request)
        classic = group
        joined = await self._loaded_groups.ask(
            loaded, lambda ticket: classic.join(request, ticket, self._now())
        )
        assert isinstance(joined, Joined)
        return joined

    async def sync(self, group_id: str, request: SyncRequest) -> Synced:
        """Returns the member's assignment, once the leader has sent it and it is stored."""
        check_group_id(group_id)
        loaded = await self._find_for_member(group_id, request.member_id)
        group = loaded.group
        if isinstance(group, ShareGroup):
            raise UnknownMember(group=group_id, member_id=request.member_id)
        if isinstance(group, ConsumerGroup):
            consumer_group = group
            return await self._loaded_groups.change(loaded, lambda: consumer_group.sync(request, self._now()))
        classic = group
        synced = await self._loaded_groups.ask(
            loaded, lambda ticket: classic.sync(request, ticket, self._now())
        )
        assert isinstance(synced, Synced)
        return synced

    async def heartbeat(self, group_id: str, member: CommitSender) -> None:
        """The heartbeat of a member of the classic protocol."""
        check_group_id(group_id)
        loaded = await self._find_for_member(group_id, member.member_id)
        group = loaded.group
        if isinstance(group, ShareGroup):
            raise UnknownMember(group=group_id, member_id=member.member_id)
        heartbeat = group.heartbeat_classic if isinstance(group, ConsumerGroup) else group.heartbeat
        try:
            heartbeat(member.member_id, member.instance_id, member.generation, self._now())
        finally:  # an error, too, may begin a time limit
            self._loaded_groups.perform_effects(loaded)

    async def consumer_heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, may_describe: MayDescribe
    ) -> ConsumerHeartbeatResponse:
        """The heartbeat of a member of the consumer protocol, which also joins and leaves by it. Regular expressions
        match what the member `may_describe`.

        A member of a group that has none, or that uses the classic protocol by now, is unknown, and joins again. Kafka
        says that there is no such group, on which its clients end.
        """
        check_group_id(group_id)
        if request.member_epoch == JOIN_EPOCH:
            loaded = await self._loaded_groups.find_or_add(group_id)
        else:
            loaded = await self._find_for_member(group_id, request.member_id)
            if isinstance(loaded.group, ClassicGroup):
                raise UnknownMember(group=group_id, member_id=request.member_id)
        return await self._loaded_groups.change(
            loaded, lambda: self._consumer_heartbeat(loaded, request, may_describe)
        )

    async def share_heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareHeartbeatResponse:
        """The heartbeat of a member of a share group, which also joins and leaves by it. Raises `UnknownGroup` if the
        group is of another type, also if it has no members. A member of a group that there is not is unknown, and joins
        again."""
        check_group_id(group_id)
        if request.member_epoch == JOIN_EPOCH:
            loaded = await self._find_or_add_share(group_id)
        else:
            loaded = await self._find_for_member(group_id, request.member_id)
        group = _as_share_group(loaded)
        topics, config = self._topics.get(), self._config_of(group_id).share
        return await self._loaded_groups.change(
            loaded, lambda: group.heartbeat(request, topics, config, self._now())
        )

    async def leave(self, group_id: str, leaving: Sequence[LeaveRequest]) -> list[MillpondError | None]:
        """Returns the error of each request, in order; None if it succeeded."""
        check_group_id(group_id)
        loaded = await self._loaded_groups.find(group_id)
        if loaded is None:
            return [UnknownMember(group=group_id, member_id=each.member_id) for each in leaving]
        group = loaded.group
        return await self._loaded_groups.change(loaded, lambda: group.leave(leaving, self._now()))

    async def check_member(
        self, group_id: str, member: CommitSender, topic_partitions: Sequence[TopicPartition] = ()
    ) -> list[MillpondError | None]:
        """Raises unless this member may commit offsets in a transaction. Returns the error of each partition, in
        order; None if the member may commit it."""
        check_storable_group_id(group_id)
        loaded = await self._loaded_groups.find(group_id)
        if loaded is not None:
            return _check_commit(loaded.group, member, topic_partitions, self._now(), transactional=True)
        if member.generation >= 0:
            raise IllegalGeneration(group=group_id, generation=member.generation, current="no generation")
        return [None] * len(topic_partitions)

    # -- offsets ----------------------------------------------------------------------------------------------

    async def commit_offsets(
        self, group_id: str, offsets: Sequence[GroupOffset], member: CommitSender = NO_MEMBER
    ) -> list[MillpondError | None]:
        """The offsets are durable when this returns. Returns the error of each offset, in order, or None; raises errors
        that concern all of them."""
        check_storable_group_id(group_id)
        if member.generation >= 0:
            loaded = await self._loaded_groups.find(group_id)
        else:
            loaded = await self._loaded_groups.find_or_add(group_id)
        if loaded is None:
            raise UnknownGroup(group=group_id)
        named = [each.topic_partition for each in offsets]
        refused = _check_commit(loaded.group, member, named, self._now(), transactional=False)
        self._loaded_groups.perform_effects(loaded)
        errors = [error or self._check_metadata(each) for each, error in zip(offsets, refused, strict=True)]
        accepted = [each for each, error in zip(offsets, errors, strict=True) if error is None]
        if accepted:
            now_ms = self._clock.now_ms()
            await self._loaded_groups.write(
                loaded.ownership,
                lambda tx: catalog.commit_offsets_now(tx, group_id, accepted, now_ms=now_ms),
            )
        return errors

    async def committed_offsets(self, group_id: str, member: CommitSender = NO_MEMBER) -> CommittedOffsets:
        """Raises if the sender names a member of the consumer protocol that is unknown, or in another epoch."""
        self._store.ownership(group_id)  # raises unless this broker coordinates the group
        if member.member_id or member.generation >= 0:
            loaded = await self._loaded_groups.find(group_id)
            if loaded is not None and isinstance(loaded.group, ConsumerGroup):
                loaded.group.check_fetch(member.member_id, member.generation)

        def read(tx: CatalogTransaction) -> CommittedOffsets:
            # Pending offsets first: if a transaction ends between the two reads, its offsets are committed ones then.
            unstable = frozenset(catalog.pending_offsets(tx, group_id))
            offsets = {each.topic_partition: each for each in catalog.committed_offsets(tx, group_id)}
            return CommittedOffsets(offsets, unstable)

        return await self._store.read(read)

    async def delete_offsets(
        self, group_id: str, topic_partitions: Sequence[TopicPartition]
    ) -> list[MillpondError | None]:
        """Returns the error of each partition, in order, or None. Refuses topics that members subscribe to, because the
        members would commit offsets again."""
        check_group_id(group_id)
        loaded = await self._loaded_groups.find(group_id)
        if loaded is None:
            await self._check_has_offsets(group_id)
        elif isinstance(loaded.group, ShareGroup):
            raise _commits_no_offsets(group_id)
        topics = loaded.group.subscribed_topics() if loaded is not None else frozenset()
        errors = [
            self._check_unsubscribed(group_id, topics, topic_partition)
            for topic_partition in topic_partitions
        ]
        deletable = [
            topic_partition
            for topic_partition, error in zip(topic_partitions, errors, strict=True)
            if error is None
        ]
        ownership = loaded.ownership if loaded is not None else self._store.ownership(group_id)
        if deletable:
            await self._loaded_groups.write(
                ownership, lambda tx: catalog.delete_offsets(tx, group_id, deletable)
            )
        return errors

    async def check_has_no_members(self, group_id: str) -> None:
        """Raises `GroupInUse` if only members may commit offsets of the group."""
        loaded = await self._loaded_groups.find(group_id)
        if loaded is not None and not _is_empty(loaded.group):
            raise _has_members(loaded)

    # -- administration ---------------------------------------------------------------------------------------

    async def describe(self, group_id: str) -> Description | ConsumerGroupDescription | ShareGroupDescription:
        loaded = await self._loaded_groups.find(group_id)
        if loaded is None:
            await self._check_has_offsets(group_id)
            return Description(group_id, GroupPhase.EMPTY)
        group = loaded.group
        return group.describe() if isinstance(group, ClassicGroup) else group.describe(self._topics.get())

    async def check_share_group(self, group_id: str, *, empty: bool = False) -> bool:
        """Returns whether there is such a share group. Raises `UnknownGroup` if it is a group of another type, and, if
        it must be `empty`, `GroupNotEmpty`."""
        check_group_id(group_id)
        loaded = await self._loaded_groups.find(group_id)
        if loaded is None:
            if await self._has_offsets(group_id):
                raise _no_share_group(group_id)
            return False
        group = _as_share_group(loaded)
        if empty and group.member_count:
            raise GroupNotEmpty(group=group_id)
        return True

    async def begin_empty_share_group(self, group_id: str) -> None:
        """Begin an epoch of a share group without members, before its positions are moved. It exists from then on.
        Raises `GroupNotEmpty`, and `UnknownGroup` if it is a group of another type."""
        check_group_id(group_id)
        loaded = await self._find_or_add_share(group_id)
        await self._loaded_groups.change(loaded, _as_share_group(loaded).begin_empty)

    async def list_groups(self, *, all_brokers: bool = False) -> list[GroupListing]:
        """Groups that have or had members, or have offsets, sorted by name: those that this broker coordinates, and
        with `all_brokers` also those of other brokers, in the state in which they were last saved."""
        stored = await self._store.read(catalog.all_groups)
        found = {
            each.group_id: GroupListing(each.group_id, each.protocol_type, each.state, each.type)
            for each in stored
            if all_brokers or self._store.coordinates(each.group_id)
        }
        for loaded in self._loaded_groups:
            group_id = loaded.ownership.group_id
            if group_id in found or not loaded.group.is_idle():
                found[group_id] = _listing(group_id, loaded.group)
        return [found[group_id] for group_id in sorted(found)]

    async def delete_group(self, group_id: str) -> None:
        loaded = await self._loaded_groups.find(group_id)
        if loaded is not None:
            await self._loaded_groups.wait_until_saved(loaded)
            if loaded.group.is_dead:
                raise NotCoordinator(group=group_id)
            if not _is_empty(loaded.group):
                raise GroupNotEmpty(group=group_id)
        existed = loaded is not None and not loaded.group.is_idle()
        ownership = loaded.ownership if loaded is not None else self._store.ownership(group_id)
        existed |= await self._loaded_groups.write(ownership, lambda tx: catalog.delete(tx, group_id))
        if loaded is not None and _is_empty(loaded.group):
            self._loaded_groups.drop(loaded)
        if not existed:
            raise UnknownGroup(group=group_id)

    # -- service ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._loaded_groups.run_timers())
                tasks.create_task(self._repeat_expiry())
        finally:
            await self._loaded_groups.drain()

    async def prepare_handover(self, shards: Collection[int]) -> None:
        """Finish the saves of these shards' groups, and drop the groups; their members then look for the new
        coordinator. The caller ensures that new requests for these groups are refused."""
        for loaded in self._loaded_groups:
            if loaded.ownership.shard in shards:
                await self._loaded_groups.wait_until_saved(loaded)
                self._loaded_groups.drop(loaded)

    def end_handover(self, shards: Collection[int]) -> None:
        """The handover has completed or failed. The next request for a group loads it again, if this broker still
        coordinates it."""

    def drop_lost(self) -> None:
        """Drop groups that this broker no longer coordinates, after shards have moved."""
        self._loaded_groups.drop_lost()

    def tick(self) -> None:
        """Process all deadlines that have passed. `run` does so by itself."""
        self._loaded_groups.tick()

    async def expire_once(self) -> int:
        """Remove unused state: offsets of groups that have had no members for a long time, and empty groups without
        offsets. Loads groups whose members may have died with another coordinator, so that their sessions expire."""
        for each in await self.list_groups():
            if each.state != GroupPhase.EMPTY and each.group_id not in self._loaded_groups:
                await self._loaded_groups.find(each.group_id)
        self._loaded_groups.evict_idle()
        if not self._trusts_clock():
            return 0
        unused_since_ms = self._clock.now_ms() - self._limits.offsets_retention_ms

        def expire(tx: CatalogTransaction) -> int:
            expired = catalog.expire_offsets(tx, unused_since_ms=unused_since_ms)
            return expired + catalog.forget_empty(tx)

        expired: int = await self._log.write(expire)
        return expired

    async def _repeat_expiry(self) -> None:
        while True:
            await asyncio.sleep(self._limits.expiry_every_ms / 1000)
            try:
                await self.expire_once()
            except MillpondError as error:
                logger.warning("group expiry failed; will retry", extra={"error": str(error)})
            except Exception as error:  # a bug, or a damaged row, must not stop the timers of all groups
                logger.exception("unexpected error in group expiry; will retry", extra={"error": error})

    # -- internals --------------------------------------------------------------------------------------------

    def _now(self) -> int:
        return self._clock.monotonic_ms()

    async def _join_consumer_group(
        self, loaded: LoadedGroup, group: ConsumerGroup, request: JoinRequest
    ) -> Joined:
        """A member of the classic protocol joins a group of the consumer protocol."""
        topics, config = self._topics.get(), self._config_of(loaded.ownership.group_id)
        return await self._loaded_groups.change(
            loaded, lambda: group.join(request, topics, config, self._now())
        )

    def _consumer_heartbeat(
        self, loaded: LoadedGroup, request: ConsumerHeartbeat, may_describe: MayDescribe
    ) -> ConsumerHeartbeatResponse:
        """Changes the group's protocol if a member can join only so."""
        group_id, topics, now_ms = loaded.ownership.group_id, self._topics.get(), self._now()
        config, former = self._config_of(group_id), loaded.group
        if isinstance(former, ShareGroup):
            raise UnknownGroup(f"Group {group_id!r} is a share group.", group=group_id)
        if isinstance(former, ConsumerGroup):
            return former.heartbeat(request, topics, config, now_ms, may_describe)
        group = ConsumerGroup.upgraded(former, topics, self._limits, self._new_id, now_ms)
        response = group.heartbeat(request, topics, config, now_ms, may_describe)
        self._loaded_groups.become_consumer(loaded, former, group)
        return response

    async def _find_or_add_share(self, group_id: str) -> LoadedGroup:
        """Returns a share group. A name under which offsets are committed belongs to a group of consumers."""
        loaded = await self._loaded_groups.find(group_id)
        if loaded is None or not isinstance(loaded.group, ShareGroup):
            if await self._has_offsets(group_id):
                raise _no_share_group(group_id)
            loaded = await self._loaded_groups.find_or_add_share(group_id)
        return loaded

    async def _find_for_member(self, group_id: str, member_id: str) -> LoadedGroup:
        """Returns the group of a request that names this member; raises `UnknownMember` if there is no such group."""
        loaded = await self._loaded_groups.find(group_id)
        if loaded is None:
            raise UnknownMember(group=group_id, member_id=member_id)
        return loaded

    def _check_metadata(self, offset: GroupOffset) -> MillpondError | None:
        size, limit = len(offset.metadata.encode()), self._limits.offset_metadata_bytes_max
        return OffsetMetadataTooLarge(size=size, limit=limit) if size > limit else None

    async def _check_has_offsets(self, group_id: str) -> None:
        if not await self._has_offsets(group_id):
            raise UnknownGroup(group=group_id)

    async def _has_offsets(self, group_id: str) -> bool:
        return await self._store.read(lambda tx: catalog.has_offsets(tx, group_id))

    def _check_unsubscribed(
        self, group_id: str, topics: frozenset[str] | None, topic_partition: TopicPartition
    ) -> MillpondError | None:
        try:
            name = self._log.topics.with_id(topic_partition.topic_id).name
        except UnknownTopic as error:
            return error
        subscribed = topics is None or name in topics
        return GroupSubscribed(group=group_id, topic=name) if subscribed else None


def _as_share_group(loaded: LoadedGroup) -> ShareGroup:
    if not isinstance(loaded.group, ShareGroup):
        raise _no_share_group(loaded.ownership.group_id)
    return loaded.group


def _no_share_group(group_id: str) -> UnknownGroup:
    return UnknownGroup(f"Group {group_id!r} is not a share group.", group=group_id)


def _commits_no_offsets(group_id: str) -> UnknownGroup:
    return UnknownGroup(f"Group {group_id!r} is a share group, which commits no offsets.", group=group_id)


def _is_empty(group: AnyGroup) -> bool:
    """A classic group that is dead is not empty."""
    return not (group.is_dead or group.member_count)


def _has_members(loaded: LoadedGroup) -> GroupInUse:
    members = loaded.group.member_count
    count = "a member, which commits" if members == 1 else f"{members} members, which commit"
    return GroupInUse(group=loaded.ownership.group_id, reason=f"it has {count} its positions")


def _listing(group_id: str, group: AnyGroup) -> GroupListing:
    if isinstance(group, ConsumerGroup):
        return GroupListing(group_id, CONSUMER, group.phase, catalog.CONSUMER)
    if isinstance(group, ShareGroup):
        return GroupListing(group_id, SHARE, group.phase, catalog.SHARE)
    return GroupListing(group_id, group.state.protocol_type, group.state.phase)


def _check_commit(
    group: AnyGroup,
    member: CommitSender,
    topic_partitions: Sequence[TopicPartition],
    now_ms: int,
    *,
    transactional: bool,
) -> list[MillpondError | None]:
    """Returns the error of each partition, in order. Raises errors that concern all of them."""
    member_id, instance_id, generation = member.member_id, member.instance_id, member.generation
    if isinstance(group, ConsumerGroup):
        return group.check_commit(
            member_id, instance_id, generation, topic_partitions, now_ms, transactional=transactional
        )
    if isinstance(group, ShareGroup):
        raise _commits_no_offsets(group.state.group_id)
    group.check_commit(member_id, instance_id, generation, now_ms, transactional=transactional)
    return [None] * len(topic_partitions)
