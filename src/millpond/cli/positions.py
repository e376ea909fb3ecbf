"""Parses positions to read from: `earliest` (or `oldest`), `latest` (or `newest`), a message number, the last N
messages, a time."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import click

from millpond.client import AsyncAdmin, TopicDescription
from millpond.model.errors import InvalidRequest
from millpond.model.units import parse_duration_ms

WHOLE_NUMBER: Final = re.compile(r"\d{1,18}")
HELP: Final = (
    "earliest, latest, a message number, -NUMBER for the last NUMBER of each partition, or a time: "
    "-1h, 2026-01-31T12:00 (local time), 2026-01-31T12:00Z."
)


@dataclass(frozen=True, slots=True)
class StartPosition:
    """`at` is a message number, a count from the end, or milliseconds (before now, or since 1970)."""

    kind: Literal["oldest", "newest", "number", "last", "ago", "time"]
    at: int = 0


OLDEST: Final = StartPosition("oldest")


class StartPositionType(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    name = "place"

    def convert(
        self, value: Any, parameter: click.Parameter | None, context: click.Context | None
    ) -> StartPosition:
        if isinstance(value, StartPosition):
            return value
        try:
            return parse_position(value)
        except ValueError:
            self.fail(f"{value!r} is none of {HELP}", parameter, context)


def parse_position(text: str) -> StartPosition:
    if text in ("earliest", "oldest"):
        return OLDEST
    if text in ("latest", "newest"):
        return StartPosition("newest")
    if WHOLE_NUMBER.fullmatch(text) and int(text) > 0:
        return StartPosition("number", int(text))
    if text.startswith("-"):
        rest = text[1:]
        return (
            StartPosition("last", int(rest))
            if WHOLE_NUMBER.fullmatch(rest)
            else StartPosition("ago", parse_duration_ms(rest))
        )
    return StartPosition("time", int(datetime.fromisoformat(text).timestamp() * 1000))


async def numbers_at(
    admin: AsyncAdmin, description: TopicDescription, start: StartPosition, now_ms: int
) -> dict[int, int]:
    """The number of the first message to read in each partition, limited to what is retained."""
    if start.kind in ("ago", "time"):
        timestamp_ms = now_ms - start.at if start.kind == "ago" else start.at
        if timestamp_ms < 0:
            raise InvalidRequest(reason="that time is before 1970")
        found: Mapping[int, int] = await admin.find_by_time(description.topic.name, timestamp_ms)
    else:
        found = {each.partition: _number_at(start, each.next) for each in description.partitions}
    return {
        each.partition: min(max(found[each.partition], each.oldest), each.next)
        for each in description.partitions
    }


def _number_at(start: StartPosition, next_number: int) -> int:
    match start.kind:
        case "newest":
            return next_number
        case "last":
            return next_number - start.at
    return start.at
