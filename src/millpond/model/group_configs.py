"""The configs of a consumer group. A group need not exist to have configs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The values that apply to a group of the consumer protocol. Defaults are Kafka's."""

    session_timeout_ms: int = 45_000
    """A member that sends no heartbeat for this long is removed."""
    heartbeat_interval_ms: int = 5_000
    """How often members send heartbeats."""
