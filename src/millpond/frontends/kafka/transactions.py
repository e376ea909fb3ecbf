"""Errors as transactional producers understand them.

That another instance has taken over was `INVALID_PRODUCER_EPOCH` until clients could tell it from the epoch of a
single partition (KIP-588); which version of an API brought the new code, its handler says.
"""

from millpond.frontends.kafka.coordination import coordinator_code_of
from millpond.model.errors import MillpondError, ProducerFenced
from millpond.protocol import ErrorCode


def transaction_code_of(error: MillpondError, version: int, *, fenced_since: int) -> ErrorCode:
    if isinstance(error, ProducerFenced) and version >= fenced_since:
        return ErrorCode.PRODUCER_FENCED
    return coordinator_code_of(error)
