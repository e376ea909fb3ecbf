"""A wrapper that retries: bounded in attempts and time, with full jitter.

Only `StoreUnavailable` is retried. `StoreFull` is not: operators or retention free the space, which takes
time, so the caller gets the error immediately. A repeated append appends again: if the bytes of the first
attempt arrived, they are in another location that no row refers to. A repeated put that finds its object
compares the bytes: a lost response is not a conflict.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from millpond.model.backoff import retry_delay
from millpond.model.buffers import Buffer
from millpond.model.clock import Clock, SystemClock
from millpond.model.errors import ObjectExists, ObjectMissing, StoreFull, StoreUnavailable
from millpond.model.extents import Location
from millpond.objects.store import Method, ObjectStore

logger = logging.getLogger(__name__)

T = TypeVar("T")
OnRetry = Callable[[str], None]
"""Called with the operation's name before each retry."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The n-th delay is drawn from 0 to `base_delay_ms` doubled n - 1 times, at most `delay_ms_max`.

    No attempt starts after `deadline_ms`. An attempt that has started may end later, by its own timeout.
    """

    attempts_max: int = 6
    deadline_ms: int = 60_000
    base_delay_ms: int = 50
    delay_ms_max: int = 5_000


class Retrying:
    """Wraps any store. Each call has its own count and deadline."""

    def __init__(
        self,
        store: ObjectStore,
        policy: RetryPolicy | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        sleep: Callable[[float], None] = time.sleep,
        on_retry: OnRetry | None = None,
    ) -> None:
        self._store = store
        self._policy = policy or RetryPolicy()
        self._clock = clock or SystemClock()
        self._random = random or Random()  # noqa: S311  # jitter is no secret
        self._sleep = sleep
        self._on_retry = on_retry
        self._closed = False

    @property
    def appends_are_uploads(self) -> bool:
        return self._store.appends_are_uploads

    @property
    def reads_at_once(self) -> int:
        return self._store.reads_at_once

    def append(self, parts: Sequence[Buffer]) -> Location:
        return self._retry("append", lambda _: self._store.append(parts))

    def is_open(self, key: str) -> bool:
        return self._store.is_open(key)

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        def attempt(number: int) -> None:
            try:
                self._store.put(key, parts)
            except ObjectExists:
                if number == 1 or not self._holds(key, parts):
                    raise

        self._retry("put", attempt)

    def read(self, key: str, start: int, length: int) -> memoryview:
        return self._retry("read", lambda _: self._store.read(key, start, length))

    def list(self, prefix: str) -> Iterator[str]:
        """A retry continues behind the last key it yielded, which ascending order allows."""
        last = ""
        call = self._begin("list")
        while True:
            try:
                for key in self._store.list(prefix):
                    if key > last:
                        yield key
                        last, call = key, self._begin("list")
                return
            except StoreUnavailable as error:
                self._pause(call, error)

    def delete(self, keys: Iterable[str]) -> None:
        chosen = tuple(keys)
        self._retry("delete", lambda _: self._store.delete(chosen))

    def size(self, key: str) -> int:
        return self._retry("size", lambda _: self._store.size(key))

    def copy(self, key: str, new_key: str) -> None:
        def attempt(number: int) -> None:
            try:
                self._store.copy(key, new_key)
            except ObjectExists:
                if number == 1 or self._store.size(key) != self._store.size(new_key):
                    raise

        self._retry("copy", attempt)

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        return self._retry("sign", lambda _: self._store.signed_url(key, method, expires_s))

    def close(self) -> None:
        self._closed = True
        self._store.close()

    def _retry(self, operation: str, action: Callable[[int], T]) -> T:
        """Call the action with the attempt's number, from 1, until it succeeds or the policy allows no
        further attempt."""
        call = self._begin(operation)
        while True:
            try:
                return action(call.attempt)
            except StoreUnavailable as error:
                self._pause(call, error)

    def _holds(self, key: str, parts: Sequence[Buffer]) -> bool:
        """Whether the object contains exactly these bytes. If so, an attempt that seemed to fail has succeeded."""
        wanted = b"".join(parts)
        try:
            return self._store.size(key) == len(wanted) and self._store.read(key, 0, len(wanted)) == wanted
        except ObjectMissing as error:
            # S3 also reports a conflict while another request for the key is in flight.
            raise StoreUnavailable(reason=f"{key} is there and is not") from error

    def _begin(self, operation: str) -> "_Call":
        return _Call(operation, self._clock.monotonic_ms() + self._policy.deadline_ms)

    def _pause(self, call: "_Call", error: StoreUnavailable) -> None:
        """Wait before the next attempt, or raise the error that ended the last one."""
        pause_ms = self._pause_ms(call.attempt)
        if isinstance(error, StoreFull) or self._closed or call.attempt >= self._policy.attempts_max:
            raise error
        if self._clock.monotonic_ms() + pause_ms > call.deadline_ms:
            raise error
        logger.warning(
            "store operation failed; will retry",
            extra={"operation": call.operation, "attempt": call.attempt, "error": str(error)},
        )
        self._sleep(pause_ms / 1_000)
        call.attempt += 1
        if self._on_retry is not None:
            self._on_retry(call.operation)

    def _pause_ms(self, attempt: int) -> float:
        policy = self._policy
        return retry_delay(
            policy.base_delay_ms, attempt - 1, self._random, maximum=policy.delay_ms_max, jitter=1.0
        )


@dataclass(slots=True)
class _Call:
    """The state of one call across its attempts."""

    operation: str
    deadline_ms: int
    attempt: int = 1
