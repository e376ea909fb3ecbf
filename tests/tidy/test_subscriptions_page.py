"""docs/reference/subscriptions.md says what the code does: every value, default, bound and limit."""

import re
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

import pytest

from millpond.model.subscriptions import (
    BOUNDS,
    DURATIONS,
    ExhaustedAction,
    SubscriptionConfig,
    SubscriptionMode,
)
from millpond.queues import AckResult, QueueLimits

PAGE = (Path(__file__).parents[2] / "docs/reference/subscriptions.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if "|" in line]


def row(name):
    [found] = [cells for cells in ROWS if cells[0] == f"`{name}`"]
    return found


@pytest.mark.parametrize("field", fields(SubscriptionConfig), ids=lambda field: field.name)
def test_every_value_is_there_with_its_unit_default_and_bounds(field):
    _, unit, default, bounds, meaning = row(field.name)
    assert (unit == "milliseconds") == (field.name in DURATIONS)
    plain = field.default if isinstance(field.default, int) else f"`{field.default}`"
    assert default == ("(empty)" if field.default == "" else str(plain))
    assert bounds == (" to ".join(map(str, BOUNDS[field.name])) if field.name in BOUNDS else "")
    assert meaning.endswith((".", "below."))


@pytest.mark.parametrize("mode", SubscriptionMode)
def test_every_mode_is_there(mode):
    assert len(row(mode)) == 3


@pytest.mark.parametrize("choice", ExhaustedAction)
def test_every_end_of_a_message_is_there(choice):
    assert f"`{choice}`" in row("on_exhausted")[4]


@pytest.mark.parametrize("answer", AckResult)
def test_every_answer_is_there(answer):
    assert len(row(answer)) == 2


def test_every_limit_that_is_named_has_its_number():
    table = PAGE.partition("## Limits")[2]
    named = re.findall(r"^\| `([\w.]+)` \| (\d+) \|", table, re.MULTILINE)
    assert len(named) >= 12
    for name, number in named:
        assert attrgetter(name)(QueueLimits()) == int(number), name
