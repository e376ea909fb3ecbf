"""Limits of the Kafka interface, with their defaults."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class KafkaLimits:
    frame_bytes_max: int = 100 * MIB
    """Maximum request size; Kafka's `socket.request.max.bytes`."""
    frames_bytes_max: int = 256 * MIB
    """Maximum memory of all connections for requests being received or processed and for unread responses. Beyond
    it, sockets are not read. If most of this memory is stuck, the connection that holds the most of it is closed."""
    requests_in_progress_max: int = 64
    """Maximum number of unanswered requests per connection; beyond it no further request is started."""
    fetch_bytes_max: int = 55 * MIB
    """Maximum size of one fetch response; Kafka's `fetch.max.bytes`. A single larger batch is still returned."""
    fetch_wait_ms_max: int = 5 * 60_000
    """Maximum time that a fetch may wait for data."""
    idle_ms: int = 10 * 60_000
    """A connection without activity for this time is closed; Kafka's `connections.max.idle.ms`."""
    stalled_ms: int = 60_000
    """A client that stops for this time in the middle of a request, or does not read its responses, is
    disconnected."""
    sweep_ms: int = 5_000
    """Interval at which connections are checked for idleness and stalls."""
    revocation_sweep_ms: int = 500
    """Interval at which connections are checked for revoked credentials, if users or tokens have changed."""
    unread_bytes_max: int = 1 * MIB
    """Maximum size of unread responses of a client; beyond it no further request of that client is started."""
    login_ms: int = 10_000
    """Maximum time from the connection to the end of the authentication, if the broker requires one."""
    login_frame_bytes_max: int = 64 * KIB
    """Maximum request size before the client has authenticated; Kafka's `sasl.server.max.receive.size`."""
    failed_login_delay_ms: int = 100
    """Delay of the response to a failed authentication; Kafka's `connection.failed.authentication.delay.ms`."""
    refused_login_linger_ms: int = 200
    """Time between that response and the end of the connection, in which the client can read the response."""
