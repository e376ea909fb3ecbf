"""Reasons of nacks: texts that a broker keeps with a failing message and adds to its dead letter.

An error handler must be able to pass any text, so none is refused: a long one is cut, and what is no Unicode is
replaced.
"""

from typing import Final

REASON_CHARACTERS_MAX: Final = 1_000
"""Brokers keep 500 bytes."""


def reason_of(error: BaseException) -> str:
    """What a handler raised, in one line."""
    try:
        said = str(error)
    except Exception:  # noqa: BLE001  # any error of the application's own class
        said = ""
    name = type(error).__name__
    return f"{name}: {said}" if said else name


def sendable(reason: str) -> str:
    return reason[:REASON_CHARACTERS_MAX].encode(errors="replace").decode()
