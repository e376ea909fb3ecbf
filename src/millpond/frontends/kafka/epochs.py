"""Leader epochs: a client that knows an older or a newer one than ours must look at the metadata again (KIP-320).

Nothing that was committed is ever cut off here, so an epoch never marks a place where logs part.
"""

from millpond.model.errors import EpochAhead, StaleEpoch

UNKNOWN_EPOCH = -1


def check_epoch(current: int, given: int) -> None:
    if given in (UNKNOWN_EPOCH, current):
        return
    kind = StaleEpoch if given < current else EpochAhead
    raise kind(epoch=given, current=current)
