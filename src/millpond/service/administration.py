"""Topics and groups for administrators. Reads from the catalog, which also has the partitions of other brokers.

A group's lag is the number of offsets between its committed offset and the end of the partition. Where a group has
committed nothing its lag is unknown, because its consumers decide where to start.
"""

from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from millpond.catalog import groups, partitions
from millpond.catalog.groups import GroupOffset
from millpond.catalog.partitions import PartitionRow
from millpond.groups import (
    CONSUMER,
    JOIN_EPOCH,
    NO_MEMBER,
    CommitSender,
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    Description,
    GroupListing,
    Groups,
    ShareGroupDescription,
    assigned_partitions,
)
from millpond.log import Log
from millpond.model.acls import AclOperation, ResourceType
from millpond.model.config_changes import ConfigChanges, setting
from millpond.model.configs import MAX_MESSAGE_BYTES, PAYLOAD, check_configs
from millpond.model.errors import (
    InvalidPartitionCount,
    InvalidRequest,
    MillpondError,
    NotCoordinator,
    NotOwner,
    TopicReplaced,
    UnknownTopic,
)
from millpond.model.ids import TopicId, TopicPartition
from millpond.model.topics import ConfigValue, Topic, check_partition_count
from millpond.security import Access
from millpond.security.throttling import charge_mutations
from millpond.service.audited_topic_changes import AuditedTopicChanges
from millpond.service.owners import InterfaceAddresses, Owners
from millpond.service.share_groups import ShareGroups
from millpond.topology import BrokerConfigs

NOT_COMMITTED: Final = -1
PRODUCER_CONFIGS: Final = (MAX_MESSAGE_BYTES, PAYLOAD)
"""The configs that a producer follows."""

AnyDescription = Description | ConsumerGroupDescription | ShareGroupDescription
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    log_start: int
    end_offset: int
    size_bytes: int
    owner: InterfaceAddresses


@dataclass(frozen=True, slots=True)
class TopicDetails:
    topic: Topic
    partitions: list[PartitionDescription]
    configs: Mapping[str, ConfigValue]
    brokers: list[InterfaceAddresses]
    """All brokers of the cluster, whether they own partitions of the topic or not."""


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A group's committed offset in a partition; None if a member reads the partition and has not committed yet.

    A share group has settled everything below its offset, and `settled_above` offsets above it."""

    topic: str
    partition: int
    offset: int | None
    log_start: int
    end_offset: int
    metadata: str
    settled_above: int = 0

    @property
    def lag(self) -> int | None:
        if self.offset is None:
            return None
        return max(0, self.end_offset - max(self.offset, self.log_start) - self.settled_above)


@dataclass(frozen=True, slots=True)
class GroupDetails:
    """`assigned` has the partitions of members, by member id and topic."""

    group: AnyDescription
    partitions: list[GroupPartition]
    assigned: Mapping[str, Mapping[str, list[int]]]

    @property
    def type(self) -> str:
        """The protocol of its members."""
        if isinstance(self.group, ShareGroupDescription):
            return groups.SHARE
        return groups.CONSUMER if isinstance(self.group, ConsumerGroupDescription) else groups.CLASSIC

    @property
    def epoch(self) -> int:
        """Rises when members or their topics change; of a classic group the generation."""
        group = self.group
        return group.generation if isinstance(group, Description) else group.group_epoch

    @property
    def lag(self) -> int | None:
        """None if the lag of one partition is unknown, or if there are no partitions."""
        known = [each.lag for each in self.partitions if each.lag is not None]
        return sum(known) if known and len(known) == len(self.partitions) else None


class Administration:
    """One method for each request, so there are more than 20."""

    def __init__(
        self,
        log: Log,
        groups: Groups,
        share_groups: ShareGroups,
        owners: Owners,
        topic_changes: AuditedTopicChanges,
        configs: BrokerConfigs,
    ) -> None:
        self._log = log
        self._topic_changes = topic_changes
        self._owners = owners
        self._groups = groups
        self._share_groups = share_groups
        self._configs = configs

    # -- topics -----------------------------------------------------------------------------------------------

    def topics(self, access: Access) -> list[Topic]:
        """The topics that the client may describe, sorted by name."""
        return [topic for topic in self._log.topics.all() if _may_describe(access, topic.name)]

    def topic(self, name: str) -> Topic:
        return self._log.topics.named(name)

    @staticmethod
    def visible_configs(access: Access, topic: str, configs: Mapping[str, T]) -> dict[str, T]:
        """The configs that the client may see. Without the right to describe configs it sees those that limit what it
        may produce."""
        if access.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic):
            return dict(configs)
        return {name: configs[name] for name in PRODUCER_CONFIGS if name in configs}

    async def create_topic(
        self,
        name: str,
        count: int | None = None,
        configs: Mapping[str, str] | None = None,
        *,
        access: Access,
    ) -> Topic:
        """It, `alter_topic` and `delete_topic` raise `QuotaExceeded` if its client has changed too many partitions."""
        if self._log.topics.knows(name):  # another broker may have deleted it
            await self._log.catch_up()
        self._log.topics.check_new(name)
        check_configs(configs or {})
        wanted = check_partition_count(self._configs.default_partitions if count is None else count)
        charge_mutations(access, wanted)
        return await self._topic_changes.create(access, name, wanted, configs)

    async def describe_topic(self, name: str) -> TopicDetails:
        topic = await self._log.topic(name)
        rows = await self._log.read(lambda tx: partitions.of_topic(tx, topic.id))
        brokers = self._owners.by_session()
        found = [_partition(row, brokers.get(row.owner or "", {})) for row in rows]
        return TopicDetails(topic, found, topic.describe_config(), list(brokers.values()))

    def describe_planned(self, topic: Topic) -> TopicDetails:
        """Describes a topic that does not exist yet. No broker owns its partitions."""
        brokers = list(self._owners.by_session().values())
        planned = [PartitionDescription(number, 0, 0, 0, {}) for number in range(topic.partitions)]
        return TopicDetails(topic, planned, topic.describe_config(), brokers)

    async def alter_topic(
        self,
        name: str,
        *,
        count: int | None = None,
        changes: ConfigChanges | None = None,
        access: Access,
    ) -> Topic:
        """Add partitions, change configs (None resets to the default), or both."""
        topic = await self._log.topic(name)
        check_configs({key: value for key, value in (changes or {}).items() if value is not None})
        if count is not None and count != topic.partitions:
            if check_partition_count(count) < topic.partitions:
                reason = f"it has {topic.partitions}, and partitions cannot be taken away"
                raise InvalidPartitionCount(partitions=count, reason=reason)
            charge_mutations(access, count - topic.partitions)
            topic = await self._topic_changes.add_partitions(access, name, count)
        if changes:
            topic = await self._topic_changes.alter_config(access, name, setting(changes))
        return topic

    async def delete_topic(self, name: str, *, access: Access) -> None:
        topic = await self._log.topic(name)
        charge_mutations(access, topic.partitions)
        await self._topic_changes.delete(access, name)

    async def delete_records(self, name: str, partition: int, before_offset: int, *, access: Access) -> int:
        """Delete everything below an offset; returns the new log start."""
        topic_partition = await self._log.find_partition(name, partition)
        deleting = self._topic_changes.delete_records(access, topic_partition, before_offset)
        return await self._by_owner(topic_partition, deleting)

    async def offset_at(self, name: str, partition: int, timestamp_ms: int) -> int:
        """The offset of the first message at or after a time; the end offset if all are older."""
        topic_partition = await self._log.find_partition(name, partition)
        row = await self._log.read(lambda tx: partitions.read(tx, topic_partition))
        return await self._log.offset_stored_at(row, timestamp_ms)

    async def other_owners(self, name: str, interface: str) -> list[str]:
        """The addresses of the brokers that own the topic's other partitions. Raises `NotOwner`, with an owner's
        address, if this broker owns no partition of the topic."""
        topic = await self._log.topic(name)
        topic_partitions = [TopicPartition(topic.id, number) for number in range(topic.partitions)]
        others = [
            topic_partition for topic_partition in topic_partitions if not self._log.owns(topic_partition)
        ]
        known = {topic_partition: self._owners.addresses(topic_partition) for topic_partition in others}
        reachable = [topic_partition for topic_partition in others if interface in known[topic_partition]]
        if len(others) == len(topic_partitions) and reachable:
            raise self._owners.explain(NotOwner(), reachable[0])
        return sorted({known[topic_partition][interface] for topic_partition in reachable})

    async def _by_owner(self, topic_partition: TopicPartition, work: Awaitable[T]) -> T:
        """Add the owner's addresses to a `NotOwner` error."""
        try:
            return await work
        except NotOwner as error:
            raise self._owners.explain(error, topic_partition) from error

    # -- groups -----------------------------------------------------------------------------------------------

    async def groups(self, access: Access) -> list[GroupListing]:
        """The groups that the client may describe, whichever broker coordinates them."""
        found = await self._groups.list_groups(all_brokers=True)
        if access.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
            return found
        return [
            each for each in found if access.allows(AclOperation.DESCRIBE, ResourceType.GROUP, each.group_id)
        ]

    async def describe_group(self, group_id: str, access: Access) -> GroupDetails:
        """The group, and its offsets in the topics that the client may describe."""
        description = await self._with_coordinator(group_id, self._groups.describe(group_id))
        if isinstance(description, ShareGroupDescription):
            return await self._share_group(description, access)
        committed = await self._with_coordinator(group_id, self._groups.committed_offsets(group_id))
        if not all(
            self._log.topics.knows_id(topic_partition.topic_id) for topic_partition in committed.offsets
        ):
            await self._log.catch_up()  # another broker may have created the topic a moment ago
        assigned = self._assigned(description)
        uncommitted = set().union(*assigned.values()) - committed.offsets.keys()
        rows = await self._rows({*committed.offsets, *uncommitted})
        offsets = [
            *committed.offsets.values(),
            *(GroupOffset(topic_partition, NOT_COMMITTED) for topic_partition in uncommitted),
        ]
        known = [self._group_partition(each, rows) for each in offsets]
        found = [each for each in known if each is not None and _may_describe(access, each.topic)]
        visible = {member_id: self._visible(each, access) for member_id, each in assigned.items()}
        return GroupDetails(
            description, sorted(found, key=lambda each: (each.topic, each.partition)), visible
        )

    async def _share_group(self, group: ShareGroupDescription, access: Access) -> GroupDetails:
        positions = await self._with_coordinator(group.group_id, self._share_groups.positions(group.group_id))
        found = [
            GroupPartition(
                name,
                each.partition,
                each.start_offset,
                each.log_start,
                each.end_offset,
                "",
                each.settled_above,
            )
            for name, of_topic in positions.items()
            if _may_describe(access, name)
            for each in of_topic.positions.values()
        ]
        assigned = {each.member_id: self._visible(each.assigned, access) for each in group.members}
        return GroupDetails(group, found, assigned)

    async def heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, access: Access
    ) -> ConsumerHeartbeatResponse:
        """The heartbeat of a member, which also joins and leaves by it. See `Groups.consumer_heartbeat`."""
        if request.member_epoch == JOIN_EPOCH and not all(
            map(self._log.topics.knows, request.topic_names or ())
        ):
            await self._log.catch_up()  # another broker may have created a topic a moment ago
        beating = self._groups.consumer_heartbeat(group_id, request, partial(_may_describe, access))
        return await self._with_coordinator(group_id, beating)

    async def commit(
        self,
        group_id: str,
        topic: str,
        offsets: Mapping[int, int],
        *,
        member: CommitSender | None = None,
        topic_id: TopicId | None = None,
    ) -> None:
        """Commit offsets of a member, or under the name of a group without members. With a `topic_id`, another topic of
        the same name is refused."""
        if not group_id:
            raise InvalidRequest(reason="a group needs a name")
        await self._check_topic(topic, topic_id)
        topic_partitions = {
            await self._log.find_partition(topic, number): offset for number, offset in offsets.items()
        }
        for offset in topic_partitions.values():
            if offset < 0:
                raise InvalidRequest(reason=f"offset {offset} cannot be committed")
        if member is None:
            await self._with_coordinator(group_id, self._groups.check_has_no_members(group_id))
        committing = self._groups.commit_offsets(
            group_id, [GroupOffset(*each) for each in topic_partitions.items()], member or NO_MEMBER
        )
        await self._with_coordinator(group_id, _all_done(committing))

    async def delete_group(self, group_id: str) -> None:
        await self._with_coordinator(group_id, self._share_groups.delete_group(group_id))

    async def _with_coordinator(self, group_id: str, work: Awaitable[T]) -> T:
        """Add the coordinator's addresses to a `NotCoordinator` error."""
        try:
            return await work
        except NotCoordinator as error:
            raise self._owners.explain_coordinator(error, group_id) from error

    def _visible(self, topic_partitions: Iterable[TopicPartition], access: Access) -> dict[str, list[int]]:
        """By the names of topics that the client may describe."""
        return {topic.name: numbers for topic, numbers in self.by_topic(topic_partitions, access)}

    async def _check_topic(self, name: str, topic_id: TopicId | None) -> None:
        if topic_id in (None, (await self._log.topic(name)).id):
            return
        await self._log.catch_up()  # another broker may have created it again a moment ago
        if self._log.topics.named(name).id != topic_id:
            raise TopicReplaced(topic=name)

    def by_topic(
        self, topic_partitions: Iterable[TopicPartition], access: Access
    ) -> list[tuple[Topic, list[int]]]:
        """Topics and numbers of partitions, in order. Topics that are deleted, or that the client may not describe, are
        left out."""
        numbers: defaultdict[TopicId, list[int]] = defaultdict(list)
        for topic_id, number in sorted(topic_partitions):
            if self._log.topics.knows_id(topic_id):
                numbers[topic_id].append(number)
        found = [(self._log.topics.with_id(topic_id), found) for topic_id, found in numbers.items()]
        visible = (each for each in found if _may_describe(access, each[0].name))
        return sorted(visible, key=lambda each: each[0].name)

    def _assigned(self, group: Description | ConsumerGroupDescription) -> dict[str, set[TopicPartition]]:
        """The partitions of each member of a group of consumers, by member id."""
        if isinstance(group, ConsumerGroupDescription):
            return {member.member_id: set(member.assigned) for member in group.members}
        if group.protocol_type != CONSUMER:
            return {}
        return {member.member_id: self._classic_assignment(member.assignment) for member in group.members}

    def _classic_assignment(self, assignment: bytes) -> set[TopicPartition]:
        found = assigned_partitions([assignment])
        names = {name for name, _ in found if self._log.topics.knows(name)}
        ids = {name: self._log.topics.named(name).id for name in names}
        return {TopicPartition(ids[name], number) for name, number in found if name in ids}

    async def _rows(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionRow]:
        topic_ids = {topic_partition.topic_id for topic_partition in topic_partitions}
        found = await self._log.read(
            lambda tx: [row for topic_id in topic_ids for row in partitions.of_topic(tx, topic_id)]
        )
        return {row.topic_partition: row for row in found}

    def _group_partition(
        self, committed: GroupOffset, rows: Mapping[TopicPartition, PartitionRow]
    ) -> GroupPartition | None:
        row = rows.get(committed.topic_partition)
        try:
            name = self._log.topics.with_id(committed.topic_partition.topic_id).name
        except UnknownTopic:
            return None
        if row is None:
            return None
        return GroupPartition(
            name,
            committed.topic_partition.partition,
            None if committed.offset == NOT_COMMITTED else committed.offset,
            row.log_start,
            row.end_offset,
            committed.metadata,
        )


def _may_describe(access: Access, topic: str) -> bool:
    return access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _partition(row: PartitionRow, owner: InterfaceAddresses) -> PartitionDescription:
    return PartitionDescription(
        row.topic_partition.partition, row.log_start, row.end_offset, row.bytes, owner
    )


async def _all_done(outcomes: Awaitable[list[MillpondError | None]]) -> None:
    for error in await outcomes:
        if error is not None:
            raise error
