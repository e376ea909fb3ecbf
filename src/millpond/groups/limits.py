"""Every number that bounds the groups, with its default. Where Kafka has the number, it is Kafka's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupLimits:
    initial_rebalance_delay_ms: int = 100
    """How long an empty group waits for more members after the first; while members keep arriving it waits again, for
    twice the delay each time. Kafka's code has 3000 here, and its server.properties 0."""
    initial_rebalance_wait_max_ms: int = 3_000
    """The longest repeated wait, so that a delay of 3000 is repeated as it is, as Kafka does."""
    initial_rebalance_delays_max: int = 30
    """All waits together, as a multiple of the delay. The first member's rebalance timeout bounds them, too."""
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 30 * 60 * 1000
    rebalance_timeout_min_ms: int = 1_000
    """A shorter one is taken for this: nobody could come in time, and the group would turn in circles."""
    new_member_timeout_ms: int = 5 * 60 * 1000
    """How long the first join of a member may wait. It cannot send heartbeats yet, and a client that gave up and
    joined anew would otherwise leave one more ghost each time."""
    members_max: int = 10_000
    """Members of one group; also those who were given an id and have not come back with it."""
    offset_metadata_bytes_max: int = 4_096
    """What a consumer may note with a committed offset."""
    offsets_retention_ms: int = 7 * 86_400_000
    """Offsets of groups without members are forgotten after this."""
    expiry_every_ms: int = 10 * 60 * 1000
    reader_lease_ms: int = 15_000
    """How long a reader that is no member has a group to itself after its last sign of life."""
    readers_max: int = 10_000
    """Such readers of all groups together."""
