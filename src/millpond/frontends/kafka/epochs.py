"""Leader epochs: a client with an older or newer epoch than this broker's must refresh its metadata (KIP-320).

Committed records are never truncated, so logs never diverge at an epoch.
"""

from millpond.model.errors import EpochAhead, StaleEpoch

UNKNOWN_EPOCH = -1


def check_epoch(current: int, given: int) -> None:
    if given in (UNKNOWN_EPOCH, current):
        return
    kind = StaleEpoch if given < current else EpochAhead
    raise kind(epoch=given, current=current)
