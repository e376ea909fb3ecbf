"""Maps errors to codes that group members handle.

Consumers, old and new, handle few error codes from their coordinator and fail on all others. An unavailable
catalog, lost ownership, damaged data or a stopping broker is therefore reported as COORDINATOR_NOT_AVAILABLE.
"""

from typing import Final

from millpond.frontends.kafka.errors import code_of
from millpond.model.errors import Damaged, Fenced, MillpondError, TopicNotAuthorized, Unavailable
from millpond.protocol import ErrorCode

TEMPORARY_ERRORS: Final = (Unavailable, Fenced, Damaged)
FOREIGN_TOPICS: Final = "The group has topics that the client may not describe."


def coordinator_code_of(error: MillpondError) -> ErrorCode:
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if isinstance(error, TEMPORARY_ERRORS) else code_of(error)


def description_refusal(error: MillpondError) -> str:
    """Why a group is not described. It does not name topics whose names the client may not know."""
    return FOREIGN_TOPICS if isinstance(error, TopicNotAuthorized) else str(error)
