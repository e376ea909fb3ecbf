"""Every number that bounds the Kafka face, with its default."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    connections_max: int = 10_000
    """Past it new connections are closed at once."""
    frame_bytes_max: int = 100 * MIB
    """The largest request, Kafka's `socket.request.max.bytes`."""
    frames_bytes_max: int = 256 * MIB
    """Bytes of requests that are being received or answered, and of answers that are not yet read, of all
    connections. Past it no more is read, and if most of it is stuck, who keeps the most of it is closed."""
    requests_in_progress_max: int = 64
    """Of one connection: requests that are not yet answered. Past it its socket is not read."""
    fetch_bytes_max: int = 55 * MIB
    """What one fetch is given at most, Kafka's `fetch.max.bytes`; a single larger batch still goes out."""
    fetch_wait_ms_max: int = 5 * 60_000
    """How long a fetch may wait for something to come."""
    idle_ms: int = 10 * 60_000
    """A connection on which nothing happens for so long is closed, as Kafka's `connections.max.idle.ms`."""
    stalled_ms: int = 60_000
    """A connection that stops in the middle of a request, or does not read its answers, is closed."""
    sweep_ms: int = 5_000
    """How often connections are looked at for those two."""
    unread_bytes_max: int = 1 * MIB
    """Answers a client has not read; past it no further request of it is begun."""
