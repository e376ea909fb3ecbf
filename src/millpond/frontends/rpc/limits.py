"""Limits of the gRPC interface, with their defaults."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RpcLimits:
    request_bytes_max: int = 16 * MIB
    """Maximum request size. A larger request is refused before it is read."""
    calls_max: int = 2_000
    """Maximum number of concurrent calls, including streams; further calls are refused (RESOURCE_EXHAUSTED)."""
    requests_bytes_max: int = 256 * MIB
    """Maximum total size of requests in progress; further requests are refused (RESOURCE_EXHAUSTED). gRPC
    reads a request completely before the broker can refuse it, so one request per open call comes on top."""
    responses_bytes_max: int = 256 * MIB
    """Maximum total size of poll responses in progress. Responses get smaller as this limit is approached."""
    response_bytes_min: int = 64 * 1024
    """Lower bound for that shrinking of responses."""
    stream_requests_max: int = 256
    """Maximum number of unanswered requests per stream; beyond it the stream is not read."""
    results_per_response_max: int = 256
    """Maximum number of results in one response of a stream."""
    attach_ms_max: int = 10_000
    """Maximum time between opening a consumer's stream and its attach request."""
    deliveries_per_response_max: int = 500
    delivery_response_bytes: int = MIB
    """A response with deliveries is sent as soon as it reaches this size."""
    unread_bytes_max: int = 8 * MIB
    """Maximum size of deliveries in flight to one consumer, whatever its credit."""
    acks_in_progress_max: int = 32
    """Maximum number of acknowledgement requests (`Answers`) of one consumer whose results it has not read.
    Beyond it the stream is not read."""
    write_ms_max: int = 30_000
    """A consumer that reads nothing for this time while the broker writes to it is detached."""
    retry_after_ms: int = 200
    """The retry delay sent to clients."""
    drain_ms: int = 10_000
    """Maximum time that calls in progress may take when the broker stops."""
