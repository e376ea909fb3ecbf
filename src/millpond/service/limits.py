"""Limits of one request for single messages or payloads."""

from dataclasses import dataclass

from millpond.model.payloads import PAYLOAD_BYTES_MAX

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    produce_messages_max: int = 10_000
    """Messages in one request."""
    poll_messages_max: int = 10_000
    """Messages in one response; a request for more gets this many."""
    poll_bytes_max: int = 16 * MIB
    """Bytes of keys, values and headers in one response; a single larger message is still returned."""
    wait_ms_max: int = 5 * 60_000
    """How long a poll may wait."""
    batch_bytes: int = 1 * MIB
    """Messages of one request are packed into batches of about this size."""
    on_loop_messages: int = 200
    """More messages than this are encoded or decoded on a thread, because they would block the event loop."""
    on_loop_bytes: int = 256 * KIB
    """The same limit in bytes."""
    decoded_on_loop_bytes: int = 32 * KIB
    """Stored batches up to this size are decoded on the event loop, larger and compressed ones on a thread."""
    slow_records: int = 20_000
    """A poll that must read more records than this runs on the thread for slow work."""
    decompressed_bytes_max: int = 64 * MIB
    """Decompressed size limit of one stored batch."""


@dataclass(frozen=True, slots=True)
class PayloadLimits:
    age_ms: int = 86_400_000
    """A payload that no message refers to is deleted at this age. Its message must arrive before half of this time."""
    bytes_max: int = PAYLOAD_BYTES_MAX
    """The largest payload that can be uploaded directly to the store."""
    through_broker_bytes_max: int = 256 * MIB
    """The largest payload that can go through the broker, which holds all of it until the store has it."""
    held_bytes_max: int = 512 * MIB
    """Maximum total of the payloads that the broker holds. Above it, uploads are refused."""
    piece_bytes: int = 1 * MIB
    """A payload is read from the store and sent in chunks of this size."""
    url_s: int = 15 * 60
    """How long a signed URL is valid."""
    signs_urls: bool = True
    """Whether clients receive signed URLs, if the store supports them."""
    threads: int = 4
    """Threads that wait for the store."""

    @property
    def publish_within_ms(self) -> int:
        return self.age_ms // 2
