"""Errors as the members of a group understand them.

Consumers of every age know few codes in the answers of their coordinator and give up on the others. That the
catalog is away, or this broker about to go, is told as a coordinator that is not available.
"""

from typing import Final

from millpond.frontends.kafka.errors import code_of
from millpond.model.errors import Damaged, Fenced, MillpondError, Unavailable
from millpond.protocol import ErrorCode

PASSING: Final = (Unavailable, Fenced, Damaged)


def coordinator_code_of(error: MillpondError) -> ErrorCode:
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if isinstance(error, PASSING) else code_of(error)
