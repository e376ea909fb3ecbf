"""Saves the changes of one consumer group, one save at a time.

Every response of the group waits until the changes that it rests on are saved, also those that another member has
caused: if the coordinator moved before that, its successor could give a partition to a second member. Changes that
come while a save is in flight are saved together by the next one.

Used on one event loop; state changes only between awaits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from millpond.groups.consumer.messages import GroupChanges
from millpond.model.errors import MillpondError, NotCoordinator

Save = Callable[[GroupChanges], Awaitable[None]]
Saving = asyncio.Task[None]


class ChangeSaver:
    """After a failure the group in memory is ahead of what is saved: `on_failure` removes it, and this object saves
    nothing more. `former` are saves of the group before it had this object, which come first."""

    def __init__(
        self,
        group_id: str,
        save: Save,
        on_failure: Callable[[Exception], None],
        former: Collection[Saving] = (),
    ) -> None:
        self._group_id = group_id
        self._save = save
        self._on_failure = on_failure
        self._former = former
        self._unsaved: GroupChanges | None = None
        self._last: Saving | None = None
        self._next: Saving | None = None
        """Has not begun: it will also save changes that are still to come."""

    @property
    def is_saving(self) -> bool:
        return self._last is not None and not self._last.done()

    @property
    def in_flight(self) -> Collection[Saving]:
        return () if self._last is None else (self._last,)

    def add(self, changes: GroupChanges) -> None:
        self._unsaved = changes if self._unsaved is None else self._unsaved.followed_by(changes)
        if self._next is None:
            former = (*self._former, *self.in_flight)
            self._former = ()
            self._last = self._next = asyncio.create_task(self._save_after(former))
            self._last.add_done_callback(_retrieve)

    async def wait(self) -> None:
        """Returns when everything that was added before is saved; raises the error if that failed. A change that cannot
        be saved may be another member's: all members that wait look for the coordinator and begin again."""
        if self._last is None:
            return
        try:
            await asyncio.shield(self._last)
        except Exception as error:
            if isinstance(error, MillpondError) and error.retriable:
                raise error.copy() from error
            raise NotCoordinator(group=self._group_id) from error

    async def _save_after(self, former: Collection[Saving]) -> None:
        for each in former:
            await each
        self._next = None
        changes, self._unsaved = self._unsaved, None
        assert changes is not None, "a save begins when there are changes"
        try:
            await self._save(changes)
        except Exception as error:
            self._on_failure(error)
            raise


def _retrieve(task: "asyncio.Task[None]") -> None:
    """So that asyncio does not report an error for which no caller waits; `on_failure` has it."""
    if not task.cancelled():
        task.exception()
