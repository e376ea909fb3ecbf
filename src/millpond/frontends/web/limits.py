"""Limits of the HTTP interface, with their defaults."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WebLimits:
    request_bytes_max: int = 16 * MIB
    """Maximum size of a request body."""
    requests_bytes_max: int = 256 * MIB
    """Maximum total size of bodies in memory, of all requests together; further requests are refused (503)."""
    head_bytes_max: int = 64 * KIB
    """Maximum size of a request's request line and headers."""
    connections_max: int = 2_000
    """Maximum number of connections, each with one request at a time; further ones are refused (503)."""
    pipelined_max: int = 100
    """Maximum number of requests that a client may send before the first one is answered."""
    streams_max: int = 500
    """Maximum number of concurrent streams."""
    stream_partitions_max: int = 1_000
    """Maximum number of partitions in one stream: every event id contains the position in each of them."""
    stream_round_bytes: int = 256 * KIB
    """Maximum size of the messages that one poll of a stream returns; a single larger message is still sent."""
    stream_round_messages: int = 500
    """Maximum number of messages that one poll of a stream returns."""
    keep_alive_ms: int = 15_000
    """Interval at which an idle stream sends a keep-alive."""
    head_wait_ms: int = 10_000
    """Maximum time between the first byte of a request and the end of its head."""
    idle_ms: int = 60_000
    """A connection without a request is closed after this time."""
    body_wait_ms: int = 60_000
    """A request whose body makes no progress for this time is refused."""
    unread_wait_ms: int = 60_000
    """A client that does not read its response for this time is disconnected."""
    discarded_bytes_max: int = 64 * MIB
    """How much of a refused body is still read, so that the client receives the response."""
    sweep_ms: int = 1_000
    """Interval at which connections are checked against these limits."""
    on_loop_bytes: int = 128 * KIB
    """JSON up to this size is decoded and encoded on the event loop, larger JSON on a thread."""
    document_bytes_max: int = 1 * MIB
    """Maximum size of JSON without messages: a topic, its configs, the offsets of a group."""
    message_parts_max: int = 20_000
    """Maximum number of strings, objects and lists in one JSON message, in practice its headers. They are
    decoded in one step."""
    threads: int = 2
    """Number of threads for large JSON."""
    answer_piece_bytes: int = 256 * KIB
    """Responses are written to the socket in pieces of this size, so that a slow reader holds no more than that."""
    header_value_bytes_max: int = 4 * KIB
    """A longer key or header of a message is not put into the headers of a response."""
    retry_after_s: int = 1
    """The retry delay sent to clients."""
    drain_ms: int = 10_000
    """Maximum time that requests in progress may take when the broker stops."""
    unread_at_stop_ms: int = 1_000
    """When the broker stops, a client that reads nothing of its response for this time is disconnected."""
    watch_at_stop_ms: int = 100
    """Interval at which this is checked."""

    @property
    def json_bytes_max(self) -> int:
        """JSON bodies may be larger by the overhead of base64."""
        return self.request_bytes_max * 4 // 3 + 64 * KIB
