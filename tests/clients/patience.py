"""How long the scenarios wait."""

SECONDS_MAX = 120.0
POLL_SECONDS = 3.0
"""A poll ends as soon as it has something, so this is for those that have to join a group first."""
JOIN_SECONDS = 0.5
"""For those that look at something else between the polls of a member."""
