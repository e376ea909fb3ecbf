"""What the store's metrics say."""

import pytest

from millpond.model.errors import ObjectMissing, StoreUnavailable
from millpond.model.ids import Session
from millpond.objects.instrumented import Instrumented
from millpond.objects.memory import MemoryStore
from millpond.observability.metrics import Metrics


class Broken(MemoryStore):
    def size(self, key: str) -> int:
        raise ZeroDivisionError


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def test_calls_bytes_seconds_and_errors(metrics: Metrics) -> None:
    ticks = iter(range(100))
    store = Instrumented(Broken(Session("s1")), metrics.store, timer=lambda: next(ticks))
    location = store.append([b"abc", b"de"])
    store.append([b"f"])
    store.put("a", [b"1234567"])
    store.read(location.key, 1, 3)
    assert list(store.list("a/")) == []
    store.delete(["a"])
    with pytest.raises(ObjectMissing):
        store.read("a", 0, 1)
    with pytest.raises(ZeroDivisionError):
        store.size("a")

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"millpond_store_{name}", labels)

    assert value("operations_total", operation="append") == 2
    assert value("operations_total", operation="read") == 2
    assert value("operations_total", operation="list") == 1
    assert value("bytes_total", operation="append") == 6
    assert value("bytes_total", operation="put") == 7
    assert value("bytes_total", operation="read") == 3
    assert value("seconds_count", operation="read") == 2
    assert value("seconds_sum", operation="read") == 2
    assert value("errors_total", operation="read", kind="ObjectMissing") == 1
    assert value("errors_total", operation="size", kind="unexpected") == 1
    assert b"millpond_store_seconds_bucket" in metrics.expose()


def test_one_that_is_closed_refuses_those_who_only_read_too(metrics: Metrics) -> None:
    store = Instrumented(MemoryStore(Session("s1")), metrics.store)
    for name in ("a", "b"):
        store.put(f"folder/{name}", [b"x"])
    listing = store.list("folder/")
    assert next(listing) == "folder/a"
    store.close()
    for ask in (lambda: store.read("folder/a", 0, 1), lambda: store.size("folder/a"), lambda: next(listing)):
        with pytest.raises(StoreUnavailable, match="closed"):
            ask()


def test_two_brokers_do_not_mix(metrics: Metrics) -> None:
    Instrumented(MemoryStore(Session("s1")), metrics.store).append([b"x"])
    assert b'millpond_store_operations_total{operation="append"} 1.0' in metrics.expose()
    assert b'operation="append"' not in Metrics().expose()
