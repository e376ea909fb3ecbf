"""Every number that bounds the gRPC face, with its default."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RpcLimits:
    request_bytes_max: int = 16 * MIB
    """The largest request. A larger one is refused before it is read."""
    calls_max: int = 2_000
    """Calls at the same time, streams included. Past it they are refused (RESOURCE_EXHAUSTED)."""
    requests_bytes_max: int = 256 * MIB
    """Of all requests that are being dealt with. Past it they are refused (RESOURCE_EXHAUSTED). gRPC reads a request
    whole before anybody can refuse it: one of each call that is open comes on top."""
    answers_bytes_max: int = 256 * MIB
    """Of all polls that are being answered. The nearer it is, the smaller answers get."""
    answer_bytes_min: int = 64 * 1024
    """But no smaller than this."""
    stream_requests_max: int = 256
    """Of one stream: requests that are not yet answered. Past it the stream is not read."""
    results_per_response_max: int = 256
    """Results that one response of a stream carries."""
    attach_ms_max: int = 10_000
    """How long a consumer's stream may say nothing before it attaches."""
    deliveries_per_response_max: int = 500
    delivery_response_bytes: int = MIB
    """A response with deliveries is sent off when it has got so large."""
    unread_bytes_max: int = 8 * MIB
    """Of one consumer: deliveries on their way to it, whatever it has asked for."""
    answers_in_progress_max: int = 32
    """Of one consumer: requests with answers whose results it has not taken. Past it the stream is not read."""
    write_ms_max: int = 30_000
    """A consumer that takes nothing of what it is sent for so long is taken to be gone."""
    retry_after_ms: int = 200
    """What a client is told to wait before it tries again."""
    drain_ms: int = 10_000
    """How long calls that have begun may take when the broker stops."""
