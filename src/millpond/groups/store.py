"""Groups in the catalog. Every write verifies, in the same transaction, that this broker owns the group's shard."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from millpond.catalog import coordinators, groups
from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.groups import GroupRow
from millpond.groups.classic.messages import GroupPhase
from millpond.groups.classic.snapshot import Snapshot, decode_members, encode_members
from millpond.groups.consumer.messages import GroupChanges, StoredGroup
from millpond.groups.consumer_protocol import CONSUMER
from millpond.groups.share.messages import SHARE
from millpond.log import CatalogRole
from millpond.model.clock import Clock
from millpond.model.errors import NotCoordinator, NotOwner
from millpond.model.ids import Session

T = TypeVar("T")
NO_MEMBERS: Final = {
    kind: f'{encode_members(Snapshot(0, kind))[:-1]},"type":"{kind}"}}' for kind in (CONSUMER, SHARE)
}
"""What a version that does not know a type of groups reads of a group of that type: a classic group without members. It
never writes these texts, but keeps columns and rows that it does not know."""


class GroupOwnership(NamedTuple):
    """The shard of a group, and the epoch under which this broker owns that shard. Writes of the group are fenced by
    it."""

    group_id: str
    shard: int
    epoch: int


class GroupStore:
    """`epoch_of` returns the epoch under which this broker owns a coordinator shard; None if it does not. Its result
    may change at any time."""

    def __init__(
        self, log: CatalogRole, session: Session, epoch_of: Callable[[int], int | None], clock: Clock
    ) -> None:
        self._log = log
        self._session = session
        self._epoch_of = epoch_of
        self._clock = clock
        self._lost: dict[int, int] = {}
        """Rejected epochs, by shard. They never become valid again."""

    def coordinates(self, group_id: str) -> bool:
        return self._find_ownership(group_id) is not None

    def ownership(self, group_id: str) -> GroupOwnership:
        """Raises `NotCoordinator` if another broker coordinates the group."""
        found = self._find_ownership(group_id)
        if found is None:
            raise NotCoordinator(group=group_id)
        return found

    def _find_ownership(self, group_id: str) -> GroupOwnership | None:
        shard = coordinators.shard_of(group_id)
        epoch = self._epoch_of(shard)
        if epoch is None or epoch == self._lost.get(shard):
            return None
        return GroupOwnership(group_id, shard, epoch)

    async def read(self, function: Callable[[CatalogTransaction], T]) -> T:
        return await self._log.read(function)

    async def write(self, ownership: GroupOwnership, operation: CommitOperation) -> Any:
        """Raises `NotCoordinator`, and changes nothing, if the group has moved to another broker."""

        def fenced(tx: CatalogTransaction) -> Any:
            coordinators.hold(tx, ownership.shard, self._session, ownership.epoch)
            return operation(tx)

        try:
            return await self._log.write(fenced)
        except NotOwner as error:
            self._lost[ownership.shard] = ownership.epoch
            raise NotCoordinator(group=ownership.group_id) from error

    async def load(self, group_id: str) -> Snapshot | StoredGroup | None:
        return await self._log.read(lambda tx: _load(tx, group_id))

    async def save(self, ownership: GroupOwnership, snapshot: Snapshot) -> None:
        row = GroupRow(
            group_id=ownership.group_id,
            generation=snapshot.generation,
            protocol_type=snapshot.protocol_type,
            state=GroupPhase.STABLE if snapshot.members else GroupPhase.EMPTY,
            members=encode_members(snapshot),
            updated_at=self._clock.now_ms(),
        )
        await self.write(ownership, lambda tx: groups.save(tx, row))

    async def save_changes(self, ownership: GroupOwnership, changes: GroupChanges) -> None:
        """Save what has changed of a consumer group or a share group."""
        group_id, now_ms = ownership.group_id, self._clock.now_ms()
        state = GroupPhase.EMPTY if changes.is_empty else GroupPhase.STABLE

        def save(tx: CatalogTransaction) -> None:
            if changes.state is None:
                groups.save_epoch(tx, group_id, changes.epoch, state, now_ms=now_ms)
            else:
                kind, text = changes.type, changes.state
                row = GroupRow(group_id, changes.epoch, kind, state, NO_MEMBERS[kind], now_ms, kind, text)
                groups.save(tx, row)
            # Members of a former group of this kind may still be stored, if a classic one followed it unsaved.
            if changes.complete:
                groups.remove_members(tx, group_id)
            groups.save_members(tx, group_id, changes.members)

        await self.write(ownership, save)


def _load(tx: CatalogTransaction, group_id: str) -> Snapshot | StoredGroup | None:
    row = groups.find(tx, group_id)
    if row is None:
        return None
    if row.members != NO_MEMBERS.get(row.type):  # a classic group, or an older broker has saved it
        return decode_members(row.generation, row.protocol_type, row.members)
    return StoredGroup(row.generation, row.state_of_type, groups.members(tx, group_id), row.type)
