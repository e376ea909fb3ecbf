"""Every number that bounds a subscription and its consumers, beside those of its own config."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueueLimits:
    consumers_max: int = 1_000
    """Consumers of one subscription."""
    subscriptions_max: int = 1_000
    """Subscriptions of one topic."""
    answers_per_request_max: int = 10_000
    """Acknowledgements, refusals and extensions in one request."""
    read_bytes: int = 256 * KIB
    """What is read of the log at a time."""
    held_bytes_max: int = 8 * MIB
    """Messages of a partition that are kept in memory until they are delivered; others are read again."""
    on_loop_records: int = 200
    """Batches with more records than this are decoded on a thread."""
    on_loop_bytes: int = 64 * KIB
    decompressed_bytes_max: int = 64 * MIB
    tracked_max: int = 50_000
    """Messages of a partition that are looked at and not settled."""
    look_further_ms: int = 100
    """With a quarter of those tracked, no more of the log is looked at while something was delivered so recently."""
    delay_ms_max: int = 30 * 24 * 3_600_000
    """The longest delay that a message or a refusal may ask for."""
    extend_ms_max: int = 12 * 3_600_000
    balance_ms: int = 5_000
    """How often keys may move away from a busy consumer."""
    pull_messages_max: int = 1_000
    pull_bytes_max: int = 8 * MIB
    """Keys, values and headers that one pull gives; a single larger message is given all the same."""
    pull_wait_ms_min: int = 100
    """So long a pull looks even if it is not to wait: what is there may have to be read from the store."""
    pull_wait_ms_max: int = 60_000
    pull_idle_ms: int = 60_000
    """A consumer that pulls is taken to be gone when it was not heard of for so long and holds nothing."""
    pull_late_ms: int = 2_000
    """What came too late for a pull waits so long for the next one."""
    pullers_max: int = 5_000
    """Consumers that pull from this broker, of all subscriptions."""
    dead_letters_per_step: int = 100
    dead_letters_every_ms: int = 5_000
    """How often those are tried again that could not be written."""
    save_again_ms: int = 100
    """After the catalog refused to save; doubles up to 5 s."""
