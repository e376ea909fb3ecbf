"""The groups in memory: loaded on first use, stored when they change, and ticked when a deadline is due.

Lives on one event loop; its state changes only between awaits. A caller that waits for a response may be cancelled: the
group does not notice, as it would not notice a client that died.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from millpond.catalog.commits import CommitOperation
from millpond.groups.consumer_group import ConsumerGroup
from millpond.groups.deadlines import NamedDeadlines
from millpond.groups.group_state import NewId
from millpond.groups.limits import GroupLimits
from millpond.groups.messages import GroupResponse, Joined, SaveSnapshot, Synced
from millpond.groups.store import CoordinatedGroup, GroupStore
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError, NotCoordinator

logger = logging.getLogger(__name__)

GroupOutcome = Joined | Synced | MillpondError


@dataclass(slots=True, eq=False)
class Resident:
    """A group in memory. If the shard's epoch has changed since the group was loaded, it is dropped."""

    group: ConsumerGroup
    coordinated: CoordinatedGroup
    saving: "set[asyncio.Task[None]]" = field(default_factory=set)
    """Saves in flight. Until they are done, the catalog has an older state."""


class GroupMemory:
    def __init__(self, store: GroupStore, *, clock: Clock, limits: GroupLimits, new_id: NewId) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._new_id = new_id
        self._residents: dict[str, Resident] = {}
        self._loading: dict[CoordinatedGroup, asyncio.Task[None]] = {}
        self._tickets = count()
        self._waiting: dict[int, asyncio.Future[GroupOutcome]] = {}
        self._deadlines = NamedDeadlines()
        self._alarm = asyncio.Event()
        self._wakes_at_ms: float = -math.inf

    def __iter__(self) -> Iterator[Resident]:
        return iter(list(self._residents.values()))

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._residents

    async def find(self, group_id: str) -> Resident | None:
        """The group, if it is in memory or in the catalog; None otherwise. Concurrent callers share one read."""
        resident = self._current(group_id)
        if resident is None:
            coordinated = self._store.coordinated(group_id)
            await self._load(coordinated)
            resident = self._current(group_id)
            if (
                self._store.coordinated(group_id) != coordinated
            ):  # lost and regained: what was read may be stale
                raise NotCoordinator(group=group_id)
        return resident

    async def find_or_add(self, group_id: str) -> Resident:
        found = await self.find(group_id)
        if found is not None:
            return found
        return self._add(
            self._store.coordinated(group_id), ConsumerGroup(group_id, self._limits, self._new_id)
        )

    async def ask(self, resident: Resident, event: Callable[[int], None]) -> Joined | Synced:
        """Send the group an event with a ticket, and wait for the response."""
        ticket = next(self._tickets)
        future: asyncio.Future[GroupOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        try:
            event(ticket)
            self.perform_effects(resident)
            outcome = await future
        finally:
            self._waiting.pop(ticket, None)
        if isinstance(outcome, MillpondError):
            raise outcome
        return outcome

    def perform_effects(self, resident: Resident) -> None:
        """Perform the effects that the group has requested, and update its alarm."""
        for effect in resident.group.take_effects():
            if isinstance(effect, GroupResponse):
                self._deliver(effect)
            else:
                self._begin_save(resident, effect)
        if self._residents.get(resident.coordinated.group_id) is resident:
            self._set_alarm(resident)

    async def write(self, coordinated: CoordinatedGroup, operation: CommitOperation) -> Any:
        """Write under the group's fence. If the group has moved to another coordinator, it is dropped here."""
        try:
            return await self._store.write(coordinated, operation)
        except NotCoordinator:
            self._drop_at(coordinated)
            raise

    async def stored(self, resident: Resident) -> None:
        """Returns when no save of the group is in flight."""
        while resident.saving:
            await asyncio.wait(resident.saving)

    def drop(self, resident: Resident) -> None:
        """Remove a group that was deleted or has moved. Waiting callers receive `NotCoordinator`."""
        group_id = resident.coordinated.group_id
        if self._residents.get(group_id) is resident:
            del self._residents[group_id]
            self._deadlines.clear(group_id)
        resident.group.kill()
        self.perform_effects(resident)

    def drop_lost(self) -> None:
        """Drop groups that another broker coordinates now; otherwise their callers would wait here in vain."""
        for resident in self:
            with contextlib.suppress(NotCoordinator):
                self._current(resident.coordinated.group_id)

    def evict_idle(self) -> None:
        """Remove groups from memory that can be loaded again on the next request."""
        for group_id, resident in list(self._residents.items()):
            if resident.group.is_idle() and not resident.saving:
                del self._residents[group_id]
                self._deadlines.clear(group_id)

    # -- time -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Process everything that is due now."""
        now_ms = self._clock.monotonic_ms()
        for group_id in self._deadlines.take_due(now_ms):
            resident = self._residents[group_id]
            try:
                resident.group.tick(now_ms)
                self.perform_effects(resident)
            except Exception as error:  # a bug in one group must not stop the timers of all
                logger.exception(
                    "unexpected error in group; reloading it",
                    extra={"group": group_id, "error": error},
                )
                self.drop(resident)

    async def run_timers(self) -> None:
        """Sleeps until the next deadline of any group; woken when an earlier one is set."""
        while True:
            self._alarm.clear()
            self.tick()
            due_ms = self._deadlines.next_ms()
            self._wakes_at_ms = math.inf if due_ms is None else due_ms
            seconds = None if due_ms is None else max(due_ms - self._clock.monotonic_ms(), 1) / 1000
            try:
                async with asyncio.timeout(seconds):
                    await self._alarm.wait()
            except TimeoutError:
                pass

    async def drain(self) -> None:
        """Finish saves in flight. Callers that still wait receive `NotCoordinator` and look for the new coordinator."""
        for resident in self:
            await self.stored(resident)
            self.drop(resident)

    def _set_alarm(self, resident: Resident) -> None:
        due_ms = resident.group.next_deadline_ms()
        if due_ms is None:
            self._deadlines.clear(resident.coordinated.group_id)
            return
        self._deadlines.set(resident.coordinated.group_id, due_ms)
        if due_ms < self._wakes_at_ms:
            self._alarm.set()

    # -- internals --------------------------------------------------------------------------------------------

    def _current(self, group_id: str) -> Resident | None:
        resident = self._residents.get(group_id)
        try:
            coordinated = self._store.coordinated(group_id)
        except NotCoordinator:
            if resident is not None:
                self.drop(resident)
            raise
        if resident is not None and resident.coordinated != coordinated:  # lost and regained: it may be stale
            self.drop(resident)
            return None
        return resident

    def _add(self, coordinated: CoordinatedGroup, group: ConsumerGroup) -> Resident:
        resident = self._residents[coordinated.group_id] = Resident(group, coordinated)
        self.perform_effects(resident)
        return resident

    async def _load(self, coordinated: CoordinatedGroup) -> None:
        task = self._loading.get(coordinated)
        if task is None:
            task = self._loading[coordinated] = asyncio.create_task(self._read(coordinated))
            task.add_done_callback(lambda _: self._loading.pop(coordinated))
        try:
            await asyncio.shield(task)
        except MillpondError as error:
            raise error.copy() from error

    async def _read(self, coordinated: CoordinatedGroup) -> None:
        snapshot = await self._store.load(coordinated.group_id)
        if snapshot is None or coordinated.group_id in self._residents:
            return
        now_ms = self._clock.monotonic_ms()
        self._add(
            coordinated,
            ConsumerGroup.restored(
                coordinated.group_id, self._limits, self._new_id, snapshot=snapshot, now_ms=now_ms
            ),
        )

    def _deliver(self, answer: GroupResponse) -> None:
        future = self._waiting.pop(answer.ticket, None)
        if future is not None and not future.done():
            future.set_result(answer.outcome)

    def _begin_save(self, resident: Resident, save: SaveSnapshot) -> None:
        """Tasks start in the order in which they are created, and so do their commits: the last save wins."""
        task = asyncio.create_task(self._save(resident, save))
        resident.saving.add(task)
        task.add_done_callback(resident.saving.discard)

    async def _save(self, resident: Resident, save: SaveSnapshot) -> None:
        failure: MillpondError | None = None
        try:
            await self._store.save(resident.coordinated, save.snapshot)
        except NotCoordinator:
            self.drop(resident)
        except MillpondError as error:
            logger.warning(
                "saving group failed", extra={"group": resident.coordinated.group_id, "error": str(error)}
            )
            failure = error
        resident.group.saved(save, failure, self._clock.monotonic_ms())
        self.perform_effects(resident)

    def _drop_at(self, coordinated: CoordinatedGroup) -> None:
        resident = self._residents.get(coordinated.group_id)
        if resident is not None and resident.coordinated == coordinated:
            self.drop(resident)
