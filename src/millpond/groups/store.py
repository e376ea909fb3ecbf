"""Groups in the catalog. Every write verifies, in the same transaction, that this broker owns the group's shard."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from millpond.catalog import coordinators, groups
from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.groups import GroupRow
from millpond.groups.classic.messages import GroupPhase
from millpond.groups.classic.snapshot import Snapshot, decode_members, encode_members
from millpond.log import CatalogRole
from millpond.model.clock import Clock
from millpond.model.errors import NotCoordinator, NotOwner
from millpond.model.ids import Session

T = TypeVar("T")


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

    async def load(self, group_id: str) -> Snapshot | None:
        row = await self._log.read(lambda tx: groups.find(tx, group_id))
        return decode_members(row.generation, row.protocol_type, row.members) if row is not None else None

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
