"""The groups in memory: loaded from the catalog on first use, saved when they change, and woken when a deadline is due.

A group is of the classic or of the consumer protocol, and may change that, or it is a share group and stays one.

Used on one event loop; state changes only between awaits. A caller that waits for a response may be cancelled. That
does not change the group: until its session expires, the member stays, as if its client had died.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from millpond.catalog.commits import CommitOperation
from millpond.groups.change_saver import ChangeSaver, Saving
from millpond.groups.classic.group import ClassicGroup, NewId
from millpond.groups.classic.messages import GroupResponse, Joined, SaveSnapshot, Synced
from millpond.groups.classic.snapshot import Snapshot
from millpond.groups.consumer.group import ConsumerGroup
from millpond.groups.deadlines import NamedDeadlines
from millpond.groups.limits import GroupLimits
from millpond.groups.share.group import ShareGroup
from millpond.groups.share.messages import SHARE
from millpond.groups.store import GroupOwnership, GroupStore
from millpond.groups.subscribable_topics import CurrentTopics
from millpond.model.clock import Clock
from millpond.model.errors import MillpondError, NotCoordinator, RebalanceInProgress

logger = logging.getLogger(__name__)

T = TypeVar("T")
AnyGroup = ClassicGroup | ConsumerGroup | ShareGroup
GroupOutcome = Joined | Synced | MillpondError


@dataclass(slots=True, eq=False)
class LoadedGroup:
    """A group in memory. It is dropped if the epoch of its shard has changed since it was loaded. While a save is in
    flight, the catalog holds an older state."""

    group: AnyGroup
    ownership: GroupOwnership
    changes: ChangeSaver
    """Of a consumer group or a share group."""
    saving: "set[asyncio.Task[None]]" = field(default_factory=set)
    """Saves in flight of a classic group."""

    @property
    def is_saving(self) -> bool:
        return bool(self.saving) or self.changes.is_saving


class LoadedGroups:
    """The groups in memory. Loading, saving and dropping exclude each other through the same locks, so they are one
    class with more than 20 methods."""

    def __init__(
        self, store: GroupStore, topics: CurrentTopics, *, clock: Clock, limits: GroupLimits, new_id: NewId
    ) -> None:
        self._store = store
        self._topics = topics
        self._clock = clock
        self._limits = limits
        self._new_id = new_id
        self._groups: dict[str, LoadedGroup] = {}
        self._loading: dict[GroupOwnership, asyncio.Task[bool]] = {}
        self._tickets = count()
        self._waiting: dict[int, asyncio.Future[GroupOutcome]] = {}
        self._deadlines = NamedDeadlines()
        self._alarm = asyncio.Event()
        self._wakes_at_ms: float = -math.inf

    def __iter__(self) -> Iterator[LoadedGroup]:
        return iter(list(self._groups.values()))

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    async def find(self, group_id: str) -> LoadedGroup | None:
        """Returns the group, loaded from the catalog if need be; None if the catalog does not have it. Concurrent
        callers share one read. Raises `NotCoordinator` if another broker coordinates the group."""
        loaded, exists = self._current(group_id), True
        while loaded is None and exists:  # again, if it was dropped at once because a save failed
            ownership = self._store.ownership(group_id)
            exists = await self._load(ownership)
            loaded = self._current(group_id)
            # If the shard was lost and regained meanwhile, what was read may be stale.
            if self._store.ownership(group_id) != ownership:
                raise NotCoordinator(group=group_id)
        return loaded

    async def find_or_add(self, group_id: str) -> LoadedGroup:
        found = await self.find(group_id)
        if found is not None:
            return found
        return self._add(self._store.ownership(group_id), ClassicGroup(group_id, self._limits, self._new_id))

    async def find_or_add_share(self, group_id: str) -> LoadedGroup:
        """Returns a group of any type if there is one, otherwise a new share group. A classic group that only a request
        has added is replaced."""
        found = await self.find(group_id)
        if found is not None and not isinstance(found.group, ShareGroup):
            self._evict(found)
            found = await self.find(group_id)
        if found is not None:
            return found
        return self._add(self._store.ownership(group_id), ShareGroup(group_id, self._limits))

    async def change(self, loaded: LoadedGroup, event: Callable[[], T]) -> T:
        """Send a consumer or share group an event. Returns when everything that its response rests on is saved."""
        try:
            response = event()
        except MillpondError:
            self._evict(loaded)  # it may have been added for this request
            raise
        finally:  # an error, too, may begin a time limit
            self.perform_effects(loaded)
        await loaded.changes.wait()
        return response

    async def ask(self, loaded: LoadedGroup, event: Callable[[int], None]) -> Joined | Synced:
        """Send a classic group an event and wait for its response. The ticket is a number by which the response is
        matched."""
        ticket = next(self._tickets)
        future: asyncio.Future[GroupOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        try:
            event(ticket)
            self.perform_effects(loaded)
            outcome = await future
        finally:
            self._waiting.pop(ticket, None)
        if isinstance(outcome, MillpondError):
            raise outcome
        return outcome

    def perform_effects(self, loaded: LoadedGroup) -> None:
        """Perform the effects that the group has requested, save its changes, and update its alarm."""
        group = loaded.group
        if not isinstance(group, ClassicGroup):
            group = self._save_changes(loaded, group)
        if isinstance(group, ClassicGroup):
            self._perform(loaded, group)
        if self._groups.get(loaded.ownership.group_id) is loaded:
            self._set_alarm(loaded)

    def _perform(self, loaded: LoadedGroup, group: ClassicGroup) -> None:
        for effect in group.take_effects():
            if isinstance(effect, GroupResponse):
                self._deliver(effect)
            else:
                self._begin_save(loaded, group, effect)

    def _save_changes(self, loaded: LoadedGroup, group: ConsumerGroup | ShareGroup) -> AnyGroup:
        """The group itself, or the classic group that continues it because only classic members are left."""
        if group.is_dead:
            return group
        changes = group.take_changes()
        if changes is not None:
            loaded.changes.add(changes)
        if isinstance(group, ShareGroup):
            return group
        snapshot = group.downgrade(self._topics.get())
        return group if snapshot is None else self.become_classic(loaded, group, snapshot)

    def become_classic(self, loaded: LoadedGroup, group: ConsumerGroup, snapshot: Snapshot) -> ClassicGroup:
        """The group continues with the classic protocol. It is saved as such with its next generation: until then
        another coordinator would take the same step."""
        group.kill()
        classic = ClassicGroup.restored(
            loaded.ownership.group_id, self._limits, self._new_id, snapshot, self._clock.monotonic_ms()
        )
        loaded.group = classic
        return classic

    def become_consumer(self, loaded: LoadedGroup, classic: ClassicGroup, group: ConsumerGroup) -> None:
        """The group continues with the consumer protocol. Members that wait for a generation receive an error after
        which they join again."""
        former = (*loaded.changes.in_flight, *loaded.saving)
        loaded.group, loaded.changes = group, self._saver(loaded.ownership, former)
        classic.kill(RebalanceInProgress(group=loaded.ownership.group_id))
        self._perform(loaded, classic)

    async def write(self, ownership: GroupOwnership, operation: CommitOperation) -> Any:
        """Write to the catalog, fenced by the epoch of the group's shard. If another broker coordinates the group now,
        it is dropped here."""
        try:
            return await self._store.write(ownership, operation)
        except NotCoordinator:
            self._drop_loaded_as(ownership)
            raise

    async def wait_until_saved(self, loaded: LoadedGroup) -> None:
        """Returns when no save of the group is in flight, whether or not the last one has failed."""
        while loaded.is_saving:
            with contextlib.suppress(MillpondError):
                await loaded.changes.wait()
            if loaded.saving:
                await asyncio.wait(loaded.saving)

    def drop(self, loaded: LoadedGroup) -> None:
        """Remove a group that was deleted or has another coordinator. Waiting callers receive `NotCoordinator`."""
        group_id = loaded.ownership.group_id
        if self._groups.get(group_id) is loaded:
            del self._groups[group_id]
            self._deadlines.clear(group_id)
        loaded.group.kill()
        self.perform_effects(loaded)

    def _evict(self, loaded: LoadedGroup) -> None:
        group_id = loaded.ownership.group_id
        if self._groups.get(group_id) is loaded and loaded.group.is_idle() and not loaded.is_saving:
            del self._groups[group_id]
            self._deadlines.clear(group_id)

    def drop_lost(self) -> None:
        """Drop groups that another broker coordinates now, so that their callers do not wait for a response in vain."""
        for loaded in self:
            with contextlib.suppress(NotCoordinator):
                self._current(loaded.ownership.group_id)

    def evict_idle(self) -> None:
        """Remove groups from memory that can be loaded again on the next request."""
        for loaded in self:
            self._evict(loaded)

    # -- time -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Process all deadlines that have passed."""
        now_ms = self._clock.monotonic_ms()
        for group_id in self._deadlines.take_due(now_ms):
            loaded = self._groups[group_id]
            try:
                loaded.group.tick(now_ms)
                self.perform_effects(loaded)
            except Exception as error:  # a bug in one group must not stop the timers of all
                logger.exception(
                    "unexpected error in group; reloading it",
                    extra={"group": group_id, "error": error},
                )
                self.drop(loaded)

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
        for loaded in self:
            await self.wait_until_saved(loaded)
            self.drop(loaded)

    def _set_alarm(self, loaded: LoadedGroup) -> None:
        due_ms = loaded.group.next_deadline_ms()
        if due_ms is None:
            self._deadlines.clear(loaded.ownership.group_id)
            return
        self._deadlines.set(loaded.ownership.group_id, due_ms)
        if due_ms < self._wakes_at_ms:
            self._alarm.set()

    # -- internals --------------------------------------------------------------------------------------------

    def _current(self, group_id: str) -> LoadedGroup | None:
        """Returns the group if it is loaded and current. Drops it if this broker has lost its shard since it was
        loaded, and raises `NotCoordinator` if it has not regained it."""
        loaded = self._groups.get(group_id)
        try:
            ownership = self._store.ownership(group_id)
        except NotCoordinator:
            if loaded is not None:
                self.drop(loaded)
            raise
        if loaded is not None and loaded.ownership != ownership:  # lost and regained
            self.drop(loaded)
            return None
        return loaded

    def _add(self, ownership: GroupOwnership, group: AnyGroup) -> LoadedGroup:
        loaded = self._groups[ownership.group_id] = LoadedGroup(group, ownership, self._saver(ownership))
        self.perform_effects(loaded)
        return loaded

    def _saver(self, ownership: GroupOwnership, former: Collection[Saving] = ()) -> ChangeSaver:
        return ChangeSaver(
            ownership.group_id,
            lambda changes: self._store.save_changes(ownership, changes),
            lambda error: self._failed(ownership, error),
            former,
        )

    async def _load(self, ownership: GroupOwnership) -> bool:
        """Returns whether the group exists."""
        task = self._loading.get(ownership)
        if task is None:
            task = self._loading[ownership] = asyncio.create_task(self._read(ownership))
            task.add_done_callback(lambda _: self._loading.pop(ownership))
        try:
            return await asyncio.shield(task)
        except MillpondError as error:
            raise error.copy() from error

    async def _read(self, ownership: GroupOwnership) -> bool:
        group_id = ownership.group_id
        stored = await self._store.load(group_id)
        if stored is None or group_id in self._groups:
            return stored is not None
        now_ms = self._clock.monotonic_ms()
        if isinstance(stored, Snapshot):
            classic = ClassicGroup.restored(group_id, self._limits, self._new_id, stored, now_ms)
            self._add(ownership, classic)
        elif stored.type == SHARE:
            self._add(ownership, ShareGroup.restored(group_id, self._limits, stored, now_ms))
        else:
            group = ConsumerGroup.restored(group_id, self._limits, self._new_id, stored, now_ms)
            self._add(ownership, group)
        return True

    def _deliver(self, response: GroupResponse) -> None:
        future = self._waiting.pop(response.ticket, None)
        if future is not None and not future.done():
            future.set_result(response.outcome)

    def _begin_save(self, loaded: LoadedGroup, group: ClassicGroup, save: SaveSnapshot) -> None:
        """Save a classic group in a task. Tasks start in the order in which they are created, and so do their commits:
        the last save wins."""
        task = asyncio.create_task(self._save(loaded, group, save, loaded.changes))
        loaded.saving.add(task)
        task.add_done_callback(loaded.saving.discard)

    async def _save(
        self, loaded: LoadedGroup, group: ClassicGroup, save: SaveSnapshot, former: ChangeSaver
    ) -> None:
        failure: MillpondError | None = None
        try:
            await former.wait()  # for the changes of the group before it became a classic one
            await self._store.save(loaded.ownership, save.snapshot)
        except NotCoordinator:
            self.drop(loaded)
        except MillpondError as error:
            logger.warning(
                "saving group failed", extra={"group": loaded.ownership.group_id, "error": str(error)}
            )
            failure = error
        group.saved(save, failure, self._clock.monotonic_ms())
        self.perform_effects(loaded)

    def _failed(self, ownership: GroupOwnership, error: Exception) -> None:
        """A consumer or share group could not be saved. The next request loads what is stored of it."""
        if not isinstance(error, NotCoordinator):
            logger.warning("saving group failed", extra={"group": ownership.group_id, "error": str(error)})
        self._drop_loaded_as(ownership)

    def _drop_loaded_as(self, ownership: GroupOwnership) -> None:
        loaded = self._groups.get(ownership.group_id)
        if loaded is not None and loaded.ownership == ownership:
            self.drop(loaded)
