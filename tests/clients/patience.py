"""How long the scenarios wait."""

SECONDS_MAX = 30.0
POLL_SECONDS = 0.1
JOIN_SECONDS = 0.5
"""For members of groups: kafka-python begins to join anew when a poll ends before its join does."""
