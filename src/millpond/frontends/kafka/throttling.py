"""Counts the requests of Kafka clients for their quotas, as Kafka does.

The response of a client that exceeded a quota is sent at once and says how long the client waits (`throttle_time_ms`);
the connection then reads nothing for that time (KIP-219). Counted are the size of produce requests, the size of fetch
responses, and the time that the event loop spends in handlers.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator
from inspect import iscoroutine
from types import coroutine
from typing import Any, Final, TypeVar

from millpond.frontends.kafka.authentication import AUTHENTICATE_KEY, HANDSHAKE_KEY
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import KafkaError
from millpond.model.principals import Principal
from millpond.model.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from millpond.protocol import ErrorCode, Response
from millpond.protocol.messages.fetch import FetchRequest
from millpond.protocol.messages.produce import ProduceRequest
from millpond.protocol.messages.share_fetch import ShareFetchRequest
from millpond.security.quotas import QuotaLimiter

NOT_COUNTED: Final = frozenset({HANDSHAKE_KEY, AUTHENTICATE_KEY})
"""A client that authenticates has no principal yet."""
PERCENT: Final = 100
FETCH_KEYS: Final = (FetchRequest.api_key, ShareFetchRequest.api_key)

T = TypeVar("T")


class RequestUse:
    """What one request has used."""

    __slots__ = ("handler_s", "request_bytes")

    def __init__(self, request_bytes: int) -> None:
        self.request_bytes = request_bytes
        self.handler_s = 0.0


def charge(
    limiter: QuotaLimiter,
    principal: Principal,
    client_id: str,
    api_key: int,
    use: RequestUse,
    response_bytes: int,
    response: Response | None,
) -> int:
    """Count a request. Returns how many milliseconds its connection reads nothing. A fetch that was throttled has an
    empty response, and counts nothing."""
    delay_ms: int = getattr(response, "throttle_time_ms", 0)
    if api_key in NOT_COUNTED:
        return 0
    if api_key == ProduceRequest.api_key:
        delay_ms = limiter.charge(PRODUCER_BYTE_RATE, principal, client_id, use.request_bytes)
    elif api_key in FETCH_KEYS and delay_ms == 0:
        delay_ms = limiter.charge(CONSUMER_BYTE_RATE, principal, client_id, response_bytes)
    if use.handler_s > 0:
        spent = use.handler_s * PERCENT
        delay_ms = max(delay_ms, limiter.charge(REQUEST_PERCENTAGE, principal, client_id, spent))
    return delay_ms


def measured(
    awaitable: Awaitable[T], use: RequestUse, now_s: Callable[[], float] = time.perf_counter
) -> Awaitable[T]:
    """The same awaitable, whose steps on the event loop are added to `use`. Waits are not counted."""
    return _steps(awaitable, use, now_s) if iscoroutine(awaitable) else awaitable


@coroutine
def _steps(
    target: Coroutine[Any, Any, T], use: RequestUse, now_s: Callable[[], float]
) -> Generator[Any, Any, T]:
    error: BaseException | None = None
    while True:
        began = now_s()
        try:
            waits_for = target.send(None) if error is None else target.throw(error)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            use.handler_s += now_s() - began
        error = None
        try:
            yield waits_for
        except GeneratorExit:
            target.close()
            raise
        except BaseException as raised:  # noqa: BLE001  # a cancellation, for example; the target decides
            error = raised


class Mute:
    """The time in which a connection reads and starts nothing. `on_end` is called when it is over."""

    __slots__ = ("_loop", "_on_end", "_timer", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._on_end = on_end
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_on(self) -> bool:
        return self._timer is not None

    def extend(self, delay_ms: int) -> None:
        """A delay that ends before the present one changes nothing."""
        self._until = max(self._until, self._loop.time() + delay_ms / 1000)
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._end)

    def cancel(self) -> None:
        """Ends it without the call."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        if self._loop.time() < self._until:
            self._timer = self._loop.call_at(self._until, self._end)
        else:
            self._timer = None
            self._on_end()


class MutationQuota:
    """Counts the partitions that one request creates or deletes. From the version `strict_since` on, a request is
    refused while its client is beyond its quota; earlier versions are served, and their clients wait."""

    def __init__(self, call: KafkaCall, *, strict_since: int) -> None:
        self.throttle_time_ms = 0
        """For the response."""
        self._limiter = call.services.security.quotas
        self._call = call
        self._is_strict = call.version >= strict_since

    def charge(self, partitions: int) -> None:
        """Call it before the change. Raises `KafkaError`."""
        if not self._limiter.is_active:
            return
        client = (CONTROLLER_MUTATION_RATE, self._call.access.principal, self._call.client_id)
        if self._is_strict and (delay_ms := self._limiter.delay_ms(*client)) > 0:
            self.throttle_time_ms = max(self.throttle_time_ms, delay_ms)
            message = f"The quota {CONTROLLER_MUTATION_RATE} is exceeded; try again in {delay_ms} ms."
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        delay_ms = self._limiter.charge(*client, partitions)
        if not self._is_strict:
            self.throttle_time_ms = max(self.throttle_time_ms, delay_ms)
