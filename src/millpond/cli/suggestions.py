"""A command group that suggests the nearest command for an unknown name."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

import click

SIMILARITY: Final = 0.6
"""From 0 to 1; the least that makes a name a suggestion."""


def nearest(name: str, known: Iterable[str], similarity: float = SIMILARITY) -> str | None:
    """The known name that is most similar, if any is."""
    found = get_close_matches(name, list(known), n=1, cutoff=similarity)
    return found[0] if found else None


class SuggestingGroup(click.Group):
    """Click suggests options itself, but commands only since 8.4, and not commands that are imported lazily."""

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = arguments[0]
        is_option = name.startswith("-")
        if is_option or context.resilient_parsing or self.get_command(context, name) is not None:
            return super().resolve_command(context, arguments)
        known = self.list_commands(context)
        found = nearest(name, known)
        advice = f"Did you mean {found!r}?" if found else f"Choose one of: {', '.join(known)}."
        raise click.UsageError(f"No such command {name!r}. {advice}", context)
