"""Limits and timeouts of groups, with their defaults. Where Kafka has the same limit, the default is Kafka's unless
noted."""

from dataclasses import dataclass

from millpond.model.group_configs import MigrationPolicy


@dataclass(frozen=True, slots=True)
class GroupLimits:
    initial_rebalance_delay_ms: int = 100
    """How long an empty group waits for more members after the first one. While members keep joining it waits again,
    twice this delay each time. Kafka's code has 3000 here, and its server.properties 0."""
    initial_rebalance_wait_max_ms: int = 3_000
    """The longest repeated wait, so that a delay of 3000 is repeated unchanged, as in Kafka."""
    initial_rebalance_delays_max: int = 30
    """Maximum of all waits together, as a multiple of the delay. The first member's rebalance timeout also limits
    them."""
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 30 * 60 * 1000
    rebalance_timeout_min_ms: int = 1_000
    """Shorter timeouts are raised to this: members could not rejoin in time, and the group would rebalance for ever."""
    new_member_timeout_ms: int = 5 * 60 * 1000
    """How long the first join of a member may wait. The member cannot send heartbeats yet. Without this limit, each
    client that gives up and joins again would leave one more dead member behind."""
    members_max: int = 10_000
    """Members of one group. The same limit applies to member ids that were issued and not used yet."""
    share_members_max: int = 200
    """Members of one share group."""
    offset_metadata_bytes_max: int = 4_096
    """Metadata that a consumer may store with a committed offset."""
    offsets_retention_ms: int = 7 * 86_400_000
    """Offsets of groups without members are removed after this."""
    expiry_every_ms: int = 10 * 60 * 1000
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    topic_names_max: int = 10_000
    """Topics that one member of the consumer protocol may subscribe to by name."""
    regexes_max: int = 100
    """Different regular expressions in one group. Each keeps the names of the topics that it matches."""
    regex_resolution_every_ms: int = 10_000
    """While topics change, a group matches its regular expressions with all topics no more often than this."""
    regex_refresh_ms: int = 10 * 60 * 1000
    """Without such changes they are matched again after this, because rights to describe topics may have changed."""
    regex_work_max: int = 25_000_000
    """Instructions of a regular expression times characters of topic names that one heartbeat matches; the next ones go
    on. 10,000 usual names are matched at once with an expression of 16 instructions. At worst it takes 35 ms."""
    owned_partitions_max: int = 100_000
    """Partitions that a heartbeat may report to own."""
    instant_target_size_max: int = 500_000
    """Members times partitions of a group that has a new target at each change of its members."""
    target_every_ms: int = 1_000
    """A larger group has new targets no more often than this, because they take long to compute. Kafka does so with all
    groups."""
    member_text_chars_max: int = 1_000
    """Length of each id and name by which a member of the consumer protocol describes itself."""
