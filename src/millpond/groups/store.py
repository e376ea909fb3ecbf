"""Groups in the catalog. Every write verifies, in the same transaction, that this broker owns the group's shard."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from millpond.catalog import coordinators, groups
from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.groups import GroupRow
from millpond.groups.messages import GroupPhase
from millpond.groups.snapshot import Snapshot, decode_members, encode_members
from millpond.log import CatalogRole
from millpond.model.clock import Clock
from millpond.model.errors import NotCoordinator, NotOwner
from millpond.model.ids import Session

T = TypeVar("T")


class CoordinatedGroup(NamedTuple):
    """A group, with the shard and the epoch under which this broker coordinates it."""

    group_id: str
    shard: int
    epoch: int


class GroupStore:
    """`epochs` are those of the coordinator shards that this broker owns; the mapping may change at any time."""

    def __init__(self, log: CatalogRole, session: Session, epochs: Mapping[int, int], clock: Clock) -> None:
        self._log = log
        self._session = session
        self._epochs = epochs
        self._clock = clock
        self._lost: dict[int, int] = {}
        """Rejected epochs, by shard. They never become valid again."""

    def coordinates(self, group_id: str) -> bool:
        shard = coordinators.shard_of(group_id)
        return shard in self._epochs and self._epochs[shard] != self._lost.get(shard)

    def coordinated(self, group_id: str) -> CoordinatedGroup:
        """Raises `NotCoordinator` if another broker coordinates the group."""
        if not self.coordinates(group_id):
            raise NotCoordinator(group=group_id)
        shard = coordinators.shard_of(group_id)
        return CoordinatedGroup(group_id, shard, self._epochs[shard])

    async def read(self, function: Callable[[CatalogTransaction], T]) -> T:
        return await self._log.read(function)

    async def write(self, coordinated: CoordinatedGroup, operation: CommitOperation) -> Any:
        """Raises `NotCoordinator`, and changes nothing, if the group has moved to another broker."""

        def fenced(tx: CatalogTransaction) -> Any:
            coordinators.hold(tx, coordinated.shard, self._session, coordinated.epoch)
            return operation(tx)

        try:
            return await self._log.write(fenced)
        except NotOwner as error:
            self._lost[coordinated.shard] = coordinated.epoch
            raise NotCoordinator(group=coordinated.group_id) from error

    async def load(self, group_id: str) -> Snapshot | None:
        row = await self._log.read(lambda tx: groups.find(tx, group_id))
        return decode_members(row.generation, row.protocol_type, row.members) if row is not None else None

    async def save(self, coordinated: CoordinatedGroup, snapshot: Snapshot) -> None:
        row = GroupRow(
            group_id=coordinated.group_id,
            generation=snapshot.generation,
            protocol_type=snapshot.protocol_type,
            state=GroupPhase.STABLE if snapshot.members else GroupPhase.EMPTY,
            members=encode_members(snapshot),
            updated_at=self._clock.now_ms(),
        )
        await self.write(coordinated, lambda tx: groups.save(tx, row))
