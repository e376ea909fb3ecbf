"""Warns about unknown environment variables with our prefix: a misspelt setting would be ignored silently."""

from collections.abc import Iterable
from typing import Final

from millpond.cli.output import print_note
from millpond.cli.suggestions import SIMILARITY, nearest
from millpond.model.variables import ADDRESS_VARIABLE, CLIENT_VARIABLES

PREFIX: Final = "MILLPOND_"
COMMAND_VARIABLES: Final = (*CLIENT_VARIABLES, "MILLPOND_SPARK_MASTER")
"""Known variables that are not settings."""
IGNORED_PREFIXES: Final = ("MILLPOND_TEST_", "MILLPOND_PEERS_", "MILLPOND_CHAOS_")
"""Prefixes of variables that the project's own tests read."""
TYPO: Final = 0.85
"""How similar a variable is to the one that was meant. Less would also find settings, whose names are not known."""


def warn_of_unknown_variables(environment: Iterable[str]) -> None:
    """For commands that read settings: print one line to standard error for each unknown variable, with the
    nearest known name."""
    for name, meant in unknown_variables(environment).items():
        _warn(name, meant)


def warn_of_misspelt_variables(environment: Iterable[str]) -> None:
    """For commands that connect to a broker. They read no settings, and do not import the code that knows
    their names."""
    for name in _candidate_variables(environment):
        meant = _nearest(name, [ADDRESS_VARIABLE]) or _nearest(name, CLIENT_VARIABLES, TYPO)
        if meant is not None:
            _warn(name, meant)


def unknown_variables(environment: Iterable[str]) -> dict[str, str | None]:
    """Each unknown name with the nearest known one."""
    from millpond.settings import RENAMED, names, variable_of

    known = [*map(variable_of, names()), *COMMAND_VARIABLES]
    former = [variable_of(name) for name in RENAMED]
    return {
        name: _nearest(name, known)
        for name in _candidate_variables(environment)
        if name not in (*known, *former)
    }


def _candidate_variables(environment: Iterable[str]) -> list[str]:
    return sorted(
        name
        for name in environment
        if name.startswith(PREFIX) and name not in COMMAND_VARIABLES and not name.startswith(IGNORED_PREFIXES)
    )


def _nearest(name: str, known: Iterable[str], similarity: float = SIMILARITY) -> str | None:
    """Compared without the prefix, which would make all names similar."""
    found = nearest(name.removeprefix(PREFIX), [each.removeprefix(PREFIX) for each in known], similarity)
    return None if found is None else PREFIX + found


def _warn(name: str, meant: str | None) -> None:
    advice = f"did you mean {meant}?" if meant else "`millpond settings` lists those that exist."
    print_note(f"millpond: warning: the environment variable {name} is unknown and ignored; {advice}")
