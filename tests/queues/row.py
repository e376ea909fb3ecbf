"""What a catalog keeps of one partition of a subscription, and the one comparison that everything rests on: whoever
does not have the row's epoch changes nothing."""

from dataclasses import dataclass, field

from millpond.queues.dispatcher_results import Dead, Retry, StateChanges
from millpond.queues.settled_offsets import SettledOffsets


@dataclass
class Row:
    epoch: int = 0
    floor: int = 0
    chunks: dict[int, bytes] = field(default_factory=dict)
    retries: dict[int, Retry] = field(default_factory=dict)
    dead: dict[int, Dead] = field(default_factory=dict)

    def take(self) -> int:
        """Begin to dispatch. Whoever did so before is fenced off."""
        self.epoch += 1
        return self.epoch

    def store(self, epoch: int, changes: StateChanges) -> bool:
        if epoch != self.epoch:
            return False
        self.floor = changes.settled.floor
        for number in changes.settled.removed:
            self.chunks.pop(number, None)
        self.chunks.update(changes.settled.chunks)
        for offset in changes.forgotten:
            self.retries.pop(offset, None)
        self.retries.update(changes.retries)
        self.dead.update({dead.offset: dead for dead in changes.dead})
        return True

    def settled(self, end: int) -> set[int]:
        """The settled offsets below `end`."""
        settled = SettledOffsets(self.floor, self.chunks)
        return {offset for offset in range(end) if offset in settled}
