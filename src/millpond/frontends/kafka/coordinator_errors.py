"""Maps errors to codes that group members handle.

Consumers, old and new, handle few error codes from their coordinator and fail on all others. An unavailable
catalog, lost ownership, damaged data or a stopping broker is therefore reported as COORDINATOR_NOT_AVAILABLE.
"""

from typing import Final

from millpond.frontends.kafka.errors import code_of
from millpond.model.errors import Damaged, Fenced, MillpondError, Unavailable
from millpond.protocol import ErrorCode

TEMPORARY_ERRORS: Final = (Unavailable, Fenced, Damaged)


def coordinator_code_of(error: MillpondError) -> ErrorCode:
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if isinstance(error, TEMPORARY_ERRORS) else code_of(error)
