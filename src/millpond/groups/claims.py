"""Claims: which reader may commit a group's positions in a topic without being a member of the group.

Such a reader receives every message. A second reader under the same name would also receive every message, and both
would move the same positions. A claim has a lease that its reader renews, so a dead reader blocks others for no longer
than the lease. Claims are kept in the coordinator's memory only. After a handover the first reader that asks gets the
claim, and any other is refused when it renews.

Pure: no I/O and no clock. Each call receives the time.
"""

from collections.abc import Iterable
from typing import NamedTuple

from millpond.model.errors import GroupInUse, Overloaded


class Claim(NamedTuple):
    """What a reader claims: one partition of a topic, or all of them (None)."""

    group_id: str
    topic: str
    partition: int | None


class ClaimHolder(NamedTuple):
    reader: str
    until_ms: int


class Claims:
    def __init__(self, lease_ms: int, claims_max: int) -> None:
        self._lease_ms = lease_ms
        self._claims_max = claims_max
        self._held: dict[Claim, ClaimHolder] = {}
        """In order of expiry: all leases are equally long, and a renewed claim moves to the end."""
        self._partitions: dict[tuple[str, str], set[int | None]] = {}
        """The claimed partitions of each group and topic."""

    def __len__(self) -> int:
        return len(self._held)

    def take(self, claim: Claim, reader: str, now_ms: int) -> None:
        """Claim it for this reader, or renew its claim. Raises `GroupInUse` while another reader's claim overlaps."""
        overlapping = None if claim.partition is None else {claim.partition}
        self.check(claim.group_id, claim.topic, overlapping, reader, now_ms)
        if claim not in self._held and len(self._held) >= self._claims_max:
            message = f"{len(self._held)} readers of groups hold claims, which is the limit."
            raise Overloaded(message, waiting=len(self._held), limit=self._claims_max)
        self._held.pop(claim, None)
        self._held[claim] = ClaimHolder(reader, now_ms + self._lease_ms)
        self._partitions.setdefault(claim[:2], set()).add(claim.partition)

    def check(
        self, group_id: str, topic: str, partitions: Iterable[int] | None, reader: str, now_ms: int
    ) -> None:
        """Raises `GroupInUse` if another reader has claimed one of the partitions (None: any of the topic)."""
        self._expire(now_ms)
        claimed = self._partitions.get((group_id, topic), set())
        for partition in claimed if partitions is None else claimed & {None, *partitions}:
            other = self._held[Claim(group_id, topic, partition)].reader
            if other != reader:
                reason = (
                    f"topic {topic!r} is already being read under its name by {other}; if that reader has died, its "
                    f"claim ends {self._lease_ms // 1000} s after its last sign of life"
                )
                raise GroupInUse(group=group_id, topic=topic, reason=reason)

    def release(self, claim: Claim, reader: str) -> None:
        held = self._held.get(claim)
        if held is not None and held.reader == reader:
            self._drop(claim)

    def _expire(self, now_ms: int) -> None:
        while self._held:
            claim, held = next(iter(self._held.items()))
            if held.until_ms > now_ms:
                return
            self._drop(claim)

    def _drop(self, claim: Claim) -> None:
        del self._held[claim]
        partitions = self._partitions[claim[:2]]
        partitions.discard(claim.partition)
        if not partitions:
            del self._partitions[claim[:2]]
