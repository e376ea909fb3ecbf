"""The contract of `millpond.objects.store.ObjectStore`, clause by clause, over every store and wrapper."""

import http.client
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.each import for_each

from millpond.model.errors import (
    CorruptObject,
    InvalidRequest,
    ObjectExists,
    ObjectMissing,
    StoreUnavailable,
)
from millpond.model.extents import Location
from millpond.model.ids import Session, new_session
from millpond.objects.store import KEY_LENGTH_MAX, SIGNED_SECONDS_MAX, WRITE_BYTES_MAX, ObjectStore

numbers = itertools.count()
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
many_parts = st.lists(st.binary(max_size=300), min_size=1, max_size=20).filter(any)


def fresh_key() -> str:
    return f"payloads/{next(numbers):06d}"


def read_back(store: ObjectStore, location: Location) -> bytes:
    return store.read(location.key, location.position, location.length)


class TestAppend:
    def test_bytes_come_back_joined(self, store: ObjectStore) -> None:
        location = store.append([b"one", bytearray(b" two"), memoryview(b"... three")[3:]])
        assert location.length == len(b"one two three")
        assert read_back(store, location) == b"one two three"

    def test_key_names_the_session(self, store: ObjectStore, session: Session) -> None:
        assert store.append([b"x"]).key.startswith(f"journal/{session}/")

    @quick
    @given(st.lists(many_parts, min_size=1, max_size=5))
    def test_round_trip(self, store: ObjectStore, appends: list[list[bytes]]) -> None:
        locations = [store.append(parts) for parts in appends]
        for parts, location in zip(appends, locations, strict=True):
            assert read_back(store, location) == b"".join(parts)
        assert_disjoint(locations)

    def test_more_parts_than_one_gather_write_takes(self, store: ObjectStore) -> None:
        parts = [f"{number},".encode() for number in range(5000)]
        assert read_back(store, store.append(parts)) == b"".join(parts)

    def test_large(self, store: ObjectStore) -> None:
        parts = [Random(number).randbytes(300_000) for number in range(20)]
        assert read_back(store, store.append(parts)) == b"".join(parts)

    def test_empty_parts_among_others(self, store: ObjectStore) -> None:
        assert read_back(store, store.append([b"", b"a", b"", b"b", b""])) == b"ab"

    @pytest.mark.parametrize("parts", [[], [b""], [b"", b""]])
    def test_nothing_is_refused(self, store: ObjectStore, parts: list[bytes]) -> None:
        with pytest.raises(InvalidRequest):
            store.append(parts)

    def test_too_much_is_refused(self, store: ObjectStore) -> None:
        megabyte = bytes(1 << 20)
        with pytest.raises(InvalidRequest):
            store.append([megabyte] * (WRITE_BYTES_MAX // len(megabyte)) + [b"x"])

    def test_the_same_bytes_again_are_stored_again(self, store: ObjectStore) -> None:
        assert_disjoint([store.append([b"same"]), store.append([b"same"])])

    def test_buffers_may_change_afterwards(self, store: ObjectStore) -> None:
        buffer = bytearray(b"before")
        location = store.append([buffer])
        buffer[:] = b"after!"
        buffer.append(0)  # fails while anybody still holds the buffer
        assert read_back(store, location) == b"before"

    def test_from_many_threads(self, store: ObjectStore) -> None:
        def append(number: int) -> tuple[bytes, Location]:
            content = Random(number).randbytes(1 + number * 37 % 5000)
            return content, store.append([content[:7], content[7:]])

        with ThreadPoolExecutor(8) as pool:
            written = list(pool.map(append, range(120)))
            assert all(pool.map(lambda pair: read_back(store, pair[1]) == pair[0], written))
        assert_disjoint([location for _, location in written])

    def test_acknowledged_bytes_do_not_change(self, store: ObjectStore) -> None:
        first = store.append([b"first"])
        for _ in range(20):
            store.append([bytes(10_000)])
        assert read_back(store, first) == b"first"

    def test_sessions_do_not_meet(self, open_store: Callable[[Session], ObjectStore], kind: str) -> None:
        one, other = open_store(new_session()), open_store(new_session())
        locations = [one.append([b"one"]), other.append([b"other"]), one.append([b"one"])]
        assert_disjoint(locations)
        if "memory" not in kind:
            assert read_back(one, locations[1]) == b"other"


class TestIsOpen:
    def test_only_where_appends_may_go(self, store: ObjectStore) -> None:
        closed: set[str] = set()
        for _ in range(12):
            location = store.append([bytes(30_000)])
            assert location.key not in closed
            closed |= {key for key in store.list("journal/") if not store.is_open(key)}

    def test_uploads_are_never_open(self, store: ObjectStore) -> None:
        if store.appends_are_uploads:
            assert not store.is_open(store.append([b"x"]).key)

    def test_a_put_object_is_not(self, store: ObjectStore) -> None:
        key = fresh_key()
        store.put(key, [b"x"])
        assert not store.is_open(key)

    def test_an_open_object_can_be_read_and_measured(self, store: ObjectStore) -> None:
        location = store.append([b"hello"])
        assert store.size(location.key) >= location.position + location.length
        with pytest.raises(CorruptObject):
            store.read(location.key, location.position, store.size(location.key) - location.position + 1)


class TestPut:
    @quick
    @given(many_parts)
    def test_round_trip(self, store: ObjectStore, parts: list[bytes]) -> None:
        key = fresh_key()
        store.put(key, parts)
        content = b"".join(parts)
        assert store.size(key) == len(content)
        assert store.read(key, 0, len(content)) == content

    def test_more_parts_than_one_gather_write_takes(self, store: ObjectStore) -> None:
        key, parts = fresh_key(), [f"{number},".encode() for number in range(3000)]
        store.put(key, parts)
        assert store.read(key, 0, store.size(key)) == b"".join(parts)

    def test_an_object_is_not_replaced(self, store: ObjectStore) -> None:
        key = fresh_key()
        store.put(key, [b"first"])
        with pytest.raises(ObjectExists) as caught:
            store.put(key, [b"second"])
        assert caught.value.facts["key"] == key
        assert store.read(key, 0, store.size(key)) == b"first"

    def test_one_of_many_wins(self, store: ObjectStore) -> None:
        key, barrier = fresh_key(), threading.Barrier(6)

        def put(number: int) -> bool:
            barrier.wait()
            try:
                store.put(key, [f"writer {number}".encode()])
            except ObjectExists:
                return False
            return True

        with ThreadPoolExecutor(6) as pool:
            won = list(pool.map(put, range(6)))
        assert won.count(True) == 1
        assert store.read(key, 0, store.size(key)) == f"writer {won.index(True)}".encode()

    def test_a_deleted_key_may_be_put_again(self, store: ObjectStore) -> None:
        key = fresh_key()
        store.put(key, [b"first"])
        store.delete([key])
        store.put(key, [b"second"])
        assert store.read(key, 0, 6) == b"second"

    @pytest.mark.parametrize("parts", [[], [b""]])
    def test_nothing_is_refused(self, store: ObjectStore, parts: list[bytes]) -> None:
        key = fresh_key()
        with pytest.raises(InvalidRequest):
            store.put(key, parts)
        assert list(store.list("payloads/")) == []

    def test_buffers_may_change_afterwards(self, store: ObjectStore) -> None:
        key, buffer = fresh_key(), bytearray(b"before")
        store.put(key, [buffer])
        buffer[:] = b"after!"
        buffer.append(0)
        assert store.read(key, 0, 6) == b"before"


class TestRead:
    @quick
    @given(st.data())
    def test_any_range(self, store: ObjectStore, data: st.DataObject) -> None:
        content = data.draw(st.binary(min_size=1, max_size=400))
        start = data.draw(st.integers(0, len(content) - 1))
        length = data.draw(st.integers(1, len(content) - start))
        key = fresh_key()
        store.put(key, [content])
        found = store.read(key, start, length)
        assert found == content[start : start + length]
        found[:] = bytes(length)  # it belongs to the caller
        assert store.read(key, start, length) == content[start : start + length]

    @pytest.mark.parametrize(("start", "length"), [(0, 6), (3, 3), (5, 1), (6, 1), (1000, 5)])
    def test_beyond_the_end_is_damage(self, store: ObjectStore, start: int, length: int) -> None:
        key = fresh_key()
        store.put(key, [b"hello"])
        with pytest.raises(CorruptObject) as caught:
            store.read(key, start, length)
        assert caught.value.facts["key"] == key

    def test_missing(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectMissing) as caught:
            store.read("payloads/nowhere", 0, 1)
        assert caught.value.facts["key"] == "payloads/nowhere"

    def test_a_folder_is_no_object(self, store: ObjectStore) -> None:
        store.put("payloads/folder/object", [b"x"])
        with pytest.raises(ObjectMissing):
            store.read("payloads/folder", 0, 1)
        with pytest.raises(ObjectMissing):
            store.read("payloads/folder/object/below", 0, 1)

    @pytest.mark.parametrize(("start", "length"), [(-1, 1), (0, 0), (0, -1)])
    def test_no_range(self, store: ObjectStore, start: int, length: int) -> None:
        key = fresh_key()
        store.put(key, [b"hello"])
        with pytest.raises(InvalidRequest):
            store.read(key, start, length)


class TestList:
    def test_nothing(self, store: ObjectStore) -> None:
        assert list(store.list("")) == []
        assert list(store.list("payloads/")) == []

    def test_ascending_and_by_whole_folders(self, store: ObjectStore) -> None:
        keys = ["a/b/1", "a/b/2", "a/b-c/1", "a/bc", "a/b_/9", "a0/x", "b", "a-/z"]
        for key in keys:
            store.put(key, [b"x"])
        assert list(store.list("")) == sorted(keys)
        assert list(store.list("a/")) == sorted(key for key in keys if key.startswith("a/"))
        assert list(store.list("a/b/")) == ["a/b/1", "a/b/2"]
        assert list(store.list("nothing/")) == []
        assert list(store.list("b/")) == []

    def test_appends_are_listed(self, store: ObjectStore, session: Session) -> None:
        keys = {store.append([bytes(40_000)]).key for _ in range(6)}
        assert keys <= set(store.list(f"journal/{session}/"))

    def test_half_a_name_is_no_prefix(self, store: ObjectStore) -> None:
        for prefix in ("a", "a/b", "/", "../", "a//"):
            with pytest.raises(InvalidRequest):
                list(store.list(prefix))

    def test_more_than_a_page(self, store: ObjectStore, kind: str) -> None:
        count = 1100 if kind in ("memory", "file", "s3") else 30
        keys = [f"payloads/{number:05d}" for number in range(count)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda key: store.put(key, [b"x"]), keys))
        assert list(store.list("payloads/")) == keys
        store.delete(keys)
        assert list(store.list("payloads/")) == []


class TestDelete:
    def test_gone_and_may_be_repeated(self, store: ObjectStore) -> None:
        keys = [fresh_key() for _ in range(5)]
        for key in keys:
            store.put(key, [b"x"])
        store.delete([keys[0], "payloads/nowhere", keys[1]])
        store.delete(iter(keys[:2]))
        assert list(store.list("payloads/")) == keys[2:]
        for key in keys[:2]:
            with pytest.raises(ObjectMissing):
                store.read(key, 0, 1)
            with pytest.raises(ObjectMissing):
                store.size(key)

    def test_nothing(self, store: ObjectStore) -> None:
        store.delete([])

    def test_an_open_object_is_closed_first(self, store: ObjectStore) -> None:
        deleted = store.append([b"old"])
        store.delete([deleted.key])
        assert not store.is_open(deleted.key)
        location = store.append([b"new"])
        assert location.key != deleted.key
        assert read_back(store, location) == b"new"

    def test_neighbours_stay(self, store: ObjectStore) -> None:
        store.put("a/b/1", [b"x"])
        store.put("a/c", [b"y"])
        store.delete(["a/b/1"])
        assert list(store.list("")) == ["a/c"]
        assert store.read("a/c", 0, 1) == b"y"


class TestSize:
    def test_missing(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectMissing):
            store.size("payloads/nowhere")

    def test_covers_every_append(self, store: ObjectStore) -> None:
        for length in (1, 10, 100_000, 7):
            location = store.append([bytes(length)])
            assert store.size(location.key) == location.position + location.length


BAD_KEYS = [
    "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.b", "a.b", "a b", "a\\b", "a\0", "ä", "a\n",
    "x" * (KEY_LENGTH_MAX + 1),
]  # fmt: skip


@for_each("key", BAD_KEYS)
def test_what_is_no_key_is_refused(store: ObjectStore, key: str) -> None:
    for call in (
        lambda: store.put(key, [b"x"]),
        lambda: store.read(key, 0, 1),
        lambda: store.size(key),
        lambda: store.delete([key]),
        lambda: store.is_open(key),
    ):
        with pytest.raises(InvalidRequest):
            call()


def test_closed(store: ObjectStore) -> None:
    store.append([b"x"])
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable):
        store.append([b"x"])
    with pytest.raises(StoreUnavailable):
        store.put(fresh_key(), [b"x"])


def assert_disjoint(locations: list[Location]) -> None:
    runs = sorted((place.key, place.position, place.position + place.length) for place in locations)
    for (key, _, end), (next_key, start, _) in itertools.pairwise(runs):
        assert key != next_key or end <= start


class TestCopy:
    def test_the_same_bytes_under_another_key(self, store: ObjectStore) -> None:
        one, other = fresh_key(), fresh_key()
        store.put(one, [b"some", b" bytes"])
        store.copy(one, other)
        assert store.size(other) == 10
        assert store.read(other, 0, 10) == b"some bytes"
        assert list(store.list("payloads/")) == sorted([one, other])

    def test_each_goes_for_itself(self, store: ObjectStore) -> None:
        one, other = fresh_key(), f"payloads/elsewhere/{fresh_key()}"
        store.put(one, [b"bytes"])
        store.copy(one, other)
        store.delete([one])
        assert store.read(other, 0, 5) == b"bytes"
        with pytest.raises(ObjectMissing):
            store.size(one)

    def test_nothing_is_replaced(self, store: ObjectStore) -> None:
        one, other = fresh_key(), fresh_key()
        store.put(one, [b"one"])
        store.put(other, [b"other"])
        with pytest.raises(ObjectExists) as caught:
            store.copy(one, other)
        assert caught.value.facts["key"] == other
        assert store.read(other, 0, 5) == b"other"

    def test_of_nothing(self, store: ObjectStore) -> None:
        key = fresh_key()
        with pytest.raises(ObjectMissing) as caught:
            store.copy("payloads/nowhere", key)
        assert caught.value.facts["key"] == "payloads/nowhere"
        assert list(store.list("payloads/")) == []

    def test_an_open_object_is_not_copied_or_copied_whole(self, store: ObjectStore) -> None:
        location = store.append([b"still open?"])
        if store.is_open(location.key):
            with pytest.raises(InvalidRequest):
                store.copy(location.key, fresh_key())
        else:
            key = fresh_key()
            store.copy(location.key, key)
            assert store.read(key, 0, 11) == b"still open?"

    def test_not_after_close(self, store: ObjectStore) -> None:
        key = fresh_key()
        store.put(key, [b"x"])
        store.close()
        with pytest.raises(StoreUnavailable):
            store.copy(key, fresh_key())


class TestSignedUrl:
    def test_anybody_may_put_and_get_with_it_where_there_is_one(self, store: ObjectStore, kind: str) -> None:
        key = fresh_key()
        put = store.signed_url(key, "PUT", 60)
        if "s3" not in kind:
            assert put is None
            return
        assert put is not None
        assert ask(put, "PUT", b"from outside") == (200, b"")
        assert store.read(key, 0, store.size(key)) == b"from outside"
        got = store.signed_url(key, "GET", 60)
        assert got is not None
        assert ask(got, "GET") == (200, b"from outside")

    def test_a_put_that_says_so_replaces_nothing(self, store: ObjectStore, kind: str) -> None:
        key = fresh_key()
        store.put(key, [b"first"])
        if (url := store.signed_url(key, "PUT", 60)) is not None:
            assert ask(url, "PUT", b"second", **{"If-None-Match": "*"})[0] == 412
        assert store.read(key, 0, 5) == b"first"

    def test_it_can_be_had_of_what_is_not_there(self, store: ObjectStore) -> None:
        if (url := store.signed_url(fresh_key(), "GET", 60)) is not None:
            assert ask(url, "GET")[0] == 404

    @pytest.mark.parametrize("expires_s", [0, -1, SIGNED_SECONDS_MAX + 1])
    def test_not_for_any_time(self, store: ObjectStore, expires_s: int) -> None:
        with pytest.raises(InvalidRequest):
            store.signed_url(fresh_key(), "GET", expires_s)

    def test_not_of_what_is_no_key(self, store: ObjectStore) -> None:
        with pytest.raises(InvalidRequest):
            store.signed_url("../secret", "GET", 60)


def ask(url: str, method: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """What somebody who has only the URL gets."""
    host = urlsplit(url)
    connection = http.client.HTTPConnection(host.netloc, timeout=30)
    try:
        sent = {"Content-Type": "application/octet-stream", **headers}
        connection.request(method, f"{host.path}?{host.query}", body, sent)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()
