"""A store with injected faults: the faults of a disk or an object store, on demand and repeatable.

    faults = Faults()
    store = FaultyStore(MemoryStore(session), faults)
    faults.fail_after("put")              # the next put is applied, but its response is lost
    slow = faults.hold("append")          # the next append waits
    ...                                   # (in another thread: store.append(...))
    slow.wait_reached(); slow.release()

Scripted faults are used in order, one per call of their operation. Calls without a scripted fault fail at
random at `error_rate`, half of them before and half after they are applied.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar

from millpond.model.buffers import Buffer
from millpond.model.errors import MillpondError, StoreUnavailable
from millpond.model.extents import Location
from millpond.objects.store import Method, ObjectStore

StoreOperation = Literal["append", "put", "read", "list", "delete", "size", "copy", "sign"]
HOLD_SECONDS_MAX = 30.0
"""A hold that is never released fails the test instead of hanging it."""

T = TypeVar("T")


class Hold:
    """A call that waits. `wait_reached` returns when the call has arrived; `release` lets it continue."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def wait_reached(self, timeout: float = HOLD_SECONDS_MAX) -> None:
        if not self._reached.wait(timeout):
            raise TimeoutError("no call reached the hold")

    def release(self) -> None:
        self._released.set()

    def pause(self) -> None:
        """Called by the held call."""
        self._reached.set()
        if not self._released.wait(HOLD_SECONDS_MAX):
            raise TimeoutError("the hold was not released")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one call, in this order; by default the call succeeds."""

    hold_before: Hold | None = None
    before: MillpondError | None = None
    missing_bytes: int = 0
    hold_after: Hold | None = None
    after: MillpondError | None = None


class Faults:
    """The plan of faults. Thread-safe; faults may be added while the store is in use."""

    def __init__(self, *, error_rate: float = 0.0, random: Random | None = None) -> None:
        self.error_rate = error_rate
        self._random = random or Random(0)  # noqa: S311  # a test needs the same faults each time
        self._script: dict[str, deque[Fault]] = defaultdict(deque)
        self._lock = threading.Lock()

    def let_through(self, operation: StoreOperation, times: int = 1) -> None:
        """The next calls succeed. Use it to script, for example, a failure of the third call."""
        self._add(operation, Fault(), times)

    def fail_before(
        self, operation: StoreOperation, error: MillpondError | None = None, times: int = 1
    ) -> None:
        """The call fails and nothing is applied."""
        self._add(operation, Fault(before=error or _lost()), times)

    def fail_after(
        self, operation: StoreOperation, error: MillpondError | None = None, times: int = 1
    ) -> None:
        """The call is applied and fails: its response is lost. A listing stops after its first key."""
        self._add(operation, Fault(after=error or _lost()), times)

    def hold(self, operation: StoreOperation, *, applied: bool = False) -> Hold:
        """The call waits until it is released: before it is applied or, with `applied`, before it returns."""
        hold = Hold()
        self._add(operation, Fault(hold_after=hold) if applied else Fault(hold_before=hold), 1)
        return hold

    def shorten_read(self, missing_bytes: int = 1, times: int = 1) -> None:
        """The read returns too few bytes, which no store may do. Its caller should detect that."""
        self._add("read", Fault(missing_bytes=missing_bytes), times)

    def take(self, operation: StoreOperation) -> Fault:
        """The fault for the call being made."""
        with self._lock:
            if self._script[operation]:
                return self._script[operation].popleft()
            if self._random.random() >= self.error_rate:
                return Fault()
            return Fault(before=_lost()) if self._random.random() < 0.5 else Fault(after=_lost())

    def _add(self, operation: StoreOperation, fault: Fault, times: int) -> None:
        with self._lock:
            self._script[operation].extend([fault] * times)


class FaultyStore:
    """Wraps any store and applies the planned faults to its calls. `is_open` and `close` never fail."""

    def __init__(self, store: ObjectStore, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    @property
    def appends_are_uploads(self) -> bool:
        return self._store.appends_are_uploads

    @property
    def reads_at_once(self) -> int:
        return self._store.reads_at_once

    def append(self, parts: Sequence[Buffer]) -> Location:
        return self._call("append", lambda: self._store.append(parts))

    def is_open(self, key: str) -> bool:
        return self._store.is_open(key)

    def put(self, key: str, parts: Sequence[Buffer]) -> None:
        self._call("put", lambda: self._store.put(key, parts))

    def read(self, key: str, start: int, length: int) -> memoryview:
        fault = self._faults.take("read")
        data = _apply_fault(fault, lambda: self._store.read(key, start, length))
        return data[: max(0, len(data) - fault.missing_bytes)]

    def list(self, prefix: str) -> Iterator[str]:
        fault = self._faults.take("list")
        first = Fault(hold_before=fault.hold_before, before=fault.before)
        after = Fault(hold_after=fault.hold_after, after=fault.after)
        for key in _apply_fault(first, lambda: self._store.list(prefix)):
            yield key
            _apply_fault(after, lambda: None)

    def delete(self, keys: Iterable[str]) -> None:
        self._call("delete", lambda: self._store.delete(keys))

    def size(self, key: str) -> int:
        return self._call("size", lambda: self._store.size(key))

    def copy(self, key: str, new_key: str) -> None:
        self._call("copy", lambda: self._store.copy(key, new_key))

    def signed_url(self, key: str, method: Method, expires_s: int) -> str | None:
        return self._call("sign", lambda: self._store.signed_url(key, method, expires_s))

    def close(self) -> None:
        self._store.close()

    def _call(self, operation: StoreOperation, action: Callable[[], T]) -> T:
        return _apply_fault(self._faults.take(operation), action)


def _apply_fault(fault: Fault, action: Callable[[], T]) -> T:
    if fault.hold_before is not None:
        fault.hold_before.pause()
    if fault.before is not None:
        raise fault.before
    result = action()
    if fault.hold_after is not None:
        fault.hold_after.pause()
    if fault.after is not None:
        raise fault.after
    return result


def _lost() -> StoreUnavailable:
    return StoreUnavailable(reason="a fault was injected")
