"""Every number that bounds what one request of single messages, or of payloads, may ask for."""

from dataclasses import dataclass

from millpond.model.payloads import PAYLOAD_BYTES_MAX

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    produce_messages_max: int = 10_000
    """Messages in one request."""
    poll_messages_max: int = 10_000
    """Messages in one answer; one that asks for more gets this many."""
    poll_bytes_max: int = 16 * MIB
    """Bytes of keys, values and headers in one answer; a single larger message still goes out."""
    wait_ms_max: int = 5 * 60_000
    """How long a poll may wait."""
    batch_bytes: int = 1 * MIB
    """Messages of one request are put together into batches of about this size."""
    on_loop_messages: int = 200
    """Encoding or decoding more than this is done on a thread: it would hold up everybody else."""
    on_loop_bytes: int = 256 * KIB
    """The same, by size."""
    decoded_on_loop_bytes: int = 32 * KIB
    """Stored batches up to this size are decoded at once, larger ones and compressed ones on a thread."""
    slow_records: int = 20_000
    """A poll that must go through more records than this is one of the slow ones."""
    decompressed_bytes_max: int = 64 * MIB
    """What one stored batch may expand to."""


@dataclass(frozen=True, slots=True)
class PayloadLimits:
    age_ms: int = 86_400_000
    """A payload to which no message refers is collected at this age; its message must come before half of it."""
    bytes_max: int = PAYLOAD_BYTES_MAX
    """The largest payload that is uploaded straight to the store."""
    through_broker_bytes_max: int = 256 * MIB
    """The largest one that goes through the broker, which holds all of it until the store has it."""
    held_bytes_max: int = 512 * MIB
    """All that the broker holds of them. Past it uploads are refused."""
    piece_bytes: int = 1 * MIB
    """A payload is read from the store, and sent, in pieces of this size."""
    url_s: int = 15 * 60
    """How long a signed URL is good for."""
    signs_urls: bool = True
    """Whether clients are given signed URLs, where the store has them."""
    threads: int = 4
    """That wait for the store."""

    @property
    def publish_within_ms(self) -> int:
        return self.age_ms // 2
