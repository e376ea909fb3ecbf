"""Every number that bounds the HTTP face, with its default."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class WebLimits:
    request_bytes_max: int = 16 * MIB
    """The largest body of a request."""
    requests_bytes_max: int = 256 * MIB
    """Bodies that are being received or answered, of all requests together. Past it requests are refused (503)."""
    head_bytes_max: int = 64 * KIB
    """The request line and all headers of a request."""
    connections_max: int = 2_000
    """Connections at the same time; each has one request at a time. Past it they are refused (503)."""
    pipelined_max: int = 100
    """Requests that a client may send ahead before the first is answered."""
    streams_max: int = 500
    """Streams of a topic at the same time."""
    stream_partitions_max: int = 1_000
    """Partitions in one stream: the position in each of them is part of every event's id."""
    stream_round_bytes: int = 256 * KIB
    """Of messages that are taken for a stream at a time; a single larger message still goes out."""
    stream_round_messages: int = 500
    """The same, by number."""
    keep_alive_ms: int = 15_000
    """A stream in which nothing happens says so this often."""
    head_wait_ms: int = 10_000
    """A request's head must be there this long after its first byte."""
    idle_ms: int = 60_000
    """A connection without a request is closed after this."""
    body_wait_ms: int = 60_000
    """A request whose body stops coming for this long is given up."""
    unread_wait_ms: int = 60_000
    """A client that does not read its answer for this long is closed."""
    discarded_bytes_max: int = 64 * MIB
    """Of a body that was refused: so much is still read, in order that the client sees the answer."""
    sweep_ms: int = 1_000
    """How often connections are looked at for these."""
    on_loop_bytes: int = 128 * KIB
    """JSON up to this size is read and written at once, larger ones on a thread."""
    document_bytes_max: int = 1 * MIB
    """JSON that holds no messages: a topic, its configs, offsets of a group."""
    message_parts_max: int = 20_000
    """Strings, objects and lists in one JSON message: its headers, in fact. They are decoded without a break."""
    threads: int = 2
    """For those."""
    answer_piece_bytes: int = 256 * KIB
    """Answers are handed to the socket in pieces of this size, so that a slow reader holds no more of them."""
    header_value_bytes_max: int = 4 * KIB
    """A key or header of a message that is longer is not put into the headers of an answer."""
    retry_after_s: int = 1
    """What a client is told to wait before it tries again."""
    drain_ms: int = 10_000
    """How long requests that have begun may take when the broker stops."""
    unread_at_stop_ms: int = 1_000
    """When the broker stops, a client that takes nothing of its answer for this long is not waited for."""
    watch_at_stop_ms: int = 100
    """How often that is looked at."""

    @property
    def json_bytes_max(self) -> int:
        """A JSON body may be larger by what base64 adds to the bytes it stands for."""
        return self.request_bytes_max * 4 // 3 + 64 * KIB
