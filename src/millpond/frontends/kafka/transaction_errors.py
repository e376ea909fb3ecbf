"""Maps errors to codes that transactional producers handle.

A producer fenced by another instance got `INVALID_PRODUCER_EPOCH` until clients could tell that from the epoch
of a single partition (KIP-588). Each handler declares the version of its API that introduced the new code.
"""

from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.model.errors import MillpondError, ProducerFenced
from millpond.protocol import ErrorCode


def transaction_code_of(error: MillpondError, version: int, *, fenced_since: int) -> ErrorCode:
    if isinstance(error, ProducerFenced) and version >= fenced_since:
        return ErrorCode.PRODUCER_FENCED
    return coordinator_code_of(error)
