"""Regular expressions over topic names, as in Kafka: RE2's syntax, and a match is the whole name. RE2 takes time in
proportion to the length of a name, whatever a client sends; the limits below bound the factor."""

from collections.abc import Iterable
from typing import Any, Final

from millpond.model.errors import InvalidRegularExpression

LENGTH_MAX: Final = 4096
"""Characters of an expression."""
INSTRUCTIONS_MAX: Final = 5_000
"""Of the compiled program: the longest name then takes a few milliseconds at worst, and a usual one microseconds."""
MEMORY_BYTES_MAX: Final = 256 << 10
"""Of one compiled expression. The package caches 128 of them."""


class TopicRegex:
    def __init__(self, text: str) -> None:
        compiled = _compiled(text)
        self._full_match = compiled.fullmatch
        self.instructions: int = compiled.programsize
        """The time for a name is in proportion to this, at worst."""

    def matching(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(filter(self._full_match, names))


def _compiled(text: str) -> Any:
    import re2  # on first use: few groups have regular expressions, and a broker starts without it

    if len(text) > LENGTH_MAX:
        raise InvalidRegularExpression(
            regex=text, reason=f"it has {len(text)} characters; at most {LENGTH_MAX} are allowed"
        )
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.never_capture = True  # where groups begin and end does not matter, and finding out is slow
    options.log_errors = False
    try:
        compiled = re2.compile(text, options)
    except re2.error as error:
        raise InvalidRegularExpression(regex=text, reason=_reason(error)) from None
    except UnicodeEncodeError:
        raise InvalidRegularExpression(regex=text, reason="it is not valid Unicode") from None
    if compiled.programsize > INSTRUCTIONS_MAX:
        raise InvalidRegularExpression(
            regex=text, reason=f"it is too complex: {compiled.programsize} of {INSTRUCTIONS_MAX} instructions"
        )
    return compiled


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
