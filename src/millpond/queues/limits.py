"""Limits of subscriptions and their consumers, except those in a subscription's config."""

from dataclasses import dataclass, field

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReasonLimits:
    """Reasons of failed deliveries, per partition of a subscription."""

    kept_max: int = 5
    """Reasons kept of a message, the last ones."""
    reason_bytes_max: int = 500
    """Size of a reason; a longer one is cut."""
    total_bytes_max: int = 4 * MIB
    """Bytes of all reasons in memory. Beyond it, a message that fails keeps only its last reason, cut to
    `crowded_bytes_max`."""
    crowded_bytes_max: int = 40


@dataclass(frozen=True, slots=True)
class QueueLimits:
    consumers_max: int = 1_000
    """Consumers per subscription."""
    subscriptions_max: int = 1_000
    """Subscriptions per topic."""
    acks_per_request_max: int = 10_000
    """Acks, nacks and extends in one request."""
    read_bytes: int = 256 * KIB
    """Bytes read from the log at a time."""
    held_bytes_max: int = 8 * MIB
    """Messages of a partition kept in memory until they are delivered; others are read again."""
    on_loop_records: int = 200
    """Batches with more records than this are decoded on a thread."""
    on_loop_bytes: int = 64 * KIB
    decompressed_bytes_max: int = 64 * MIB
    tracked_max: int = 50_000
    """Tracked messages of a partition: indexed and not settled."""
    look_further_ms: int = 100
    """With a quarter of `tracked_max` tracked, the log is read further only this long after the last delivery."""
    reasons: ReasonLimits = field(default_factory=ReasonLimits)
    failing_shown_max: int = 1_000
    """Failing messages per partition that the description of a subscription lists."""
    delay_ms_max: int = 30 * 24 * 3_600_000
    """The longest delay that a message or a nack may request."""
    extend_ms_max: int = 12 * 3_600_000
    balance_ms: int = 5_000
    """Minimum time between moves of keys away from a busy consumer."""
    pull_messages_max: int = 1_000
    pull_bytes_max: int = 8 * MIB
    """Bytes of keys, values and headers that one pull returns; a single larger message is returned all the same."""
    pull_wait_ms_min: int = 100
    """Minimum wait of a pull, even if the request asks for none: messages may have to be read from the store."""
    pull_wait_ms_max: int = 60_000
    pull_idle_ms: int = 60_000
    """A pulling consumer is detached when it sent no request for this long and holds no delivery."""
    pull_late_ms: int = 2_000
    """How long messages that arrived too late for a pull are kept for the consumer's next one."""
    pullers_max: int = 5_000
    """Pulling consumers of this broker, over all subscriptions."""
    dead_letters_per_step: int = 100
    dead_letters_every_ms: int = 5_000
    """Interval between retries of dead letters that could not be moved."""
    save_again_ms: int = 100
    """Delay before the first retry of a failed save; doubles up to 5 s."""
