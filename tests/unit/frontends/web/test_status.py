"""How the broker is, where things are, and that the document of the interface is true to it."""

import re
from pathlib import Path

import msgspec
import pytest

from millpond.frontends.web.openapi import document_of, refusals
from millpond.frontends.web.operations import NO_BODY, OPERATIONS
from millpond.log.backpressure import FAILURE_SHOWN_S
from millpond.model.errors import CatalogUnavailable, StoreFull
from millpond.objects.disk_reserve import Reserve
from millpond.service.metrics_page import READ_EVERY_MS
from millpond.testing import Faults, running_broker
from millpond.version import __version__

PAGE = Path(__file__).parents[4] / "docs/reference/http.md"
DOCUMENT = msgspec.json.decode(document_of(OPERATIONS, "1.2.3"))


async def test_a_broker_that_runs_is_healthy_and_ready(client):
    for path in ("/healthz", "/readyz"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_a_broker_that_cannot_write_is_healthy_and_not_ready(client, broker):
    broker._failure.set_result(None)
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "NotReady")
    assert answer.json()["details"] == {"reason": "not_serving"}
    assert answer.headers["retry-after"] == "1"
    assert (await client.get("/healthz")).status_code == 200


async def why_not_ready(client):
    """None if it is."""
    answer = await client.get("/readyz")
    if answer.status_code == 200:
        return None
    assert (answer.status_code, answer.json()["code"]) == (503, "NotReady")
    return answer.json()["details"]["reason"], answer.json()["message"]


async def test_a_broker_whose_disk_is_full_is_not_ready(tmp_path, connected_to):
    async with (
        running_broker(tmp_path, http=True, disk_reserve=1024 * 1024) as broker,
        connected_to(broker) as client,
    ):
        broker.reserve.renew = lambda: None  # there is room here, and it would be found
        assert await why_not_ready(client) is None
        broker.reserve.release()
        reason, message = await why_not_ready(client)
        assert reason == "disk_full"
        assert "is full, and nothing is appended until 2MiB are free" in message
        assert "millpond_disk_full 1.0" in (await client.get("/metrics")).text
        Reserve.renew(broker.reserve)
        assert await why_not_ready(client) is None
        assert "millpond_disk_full 0.0" in (await client.get("/metrics")).text


async def test_a_broker_whose_lease_is_overdue_is_not_ready(connected_to, clock):
    async with (
        running_broker(http=True, clock=clock, lease=3_600_000) as broker,
        connected_to(broker) as client,
    ):
        assert await why_not_ready(client) is None
        renewed = broker.lease.renewed
        broker.lease.renewed = lambda _: None  # a renewal of the broker's own may come at any moment
        clock.advance(3_600_001)
        reason, message = await why_not_ready(client)
        assert reason == "lease_overdue"
        assert "lease" in message
        broker.lease.renewed = renewed
        await broker.membership.renew()
        assert await why_not_ready(client) is None


async def test_a_broker_whose_last_flush_failed_is_not_ready_until_one_succeeds(connected_to):
    faults = Faults()
    async with (
        running_broker(http=True, faults=faults, inline_bytes_max=0) as broker,
        connected_to(broker) as client,
    ):
        await broker.log.create_topic("orders")
        faults.fail_before("append", StoreFull(reason="no space left"))
        with pytest.raises(StoreFull):
            await broker.produce("orders", b"a")
        reason, message = await why_not_ready(client)
        assert reason == "writes_refused"
        assert "no space left" in message
        broker.log._flusher.backpressure._refuse_until = 0.0  # it is tried again at once
        await broker.produce("orders", b"a")
        assert await why_not_ready(client) is None


async def test_a_failed_flush_is_forgotten_if_no_other_follows(connected_to):
    """Else a broker without producers would never be ready again, and never be sent any."""
    faults = Faults()
    async with (
        running_broker(http=True, faults=faults, inline_bytes_max=0) as broker,
        connected_to(broker) as client,
    ):
        faults.fail_before("append", StoreFull(reason="no space left"))
        with pytest.raises(StoreFull):
            await broker.produce("orders", b"a")
        broker.log._flusher.backpressure._failed_at -= FAILURE_SHOWN_S
        assert await why_not_ready(client) is None


async def test_answers_are_counted_by_operation_and_status(client):
    await client.get("/topics/nothing")
    await client.get("/nowhere")
    lines = (await client.get("/metrics")).text.splitlines()
    assert 'millpond_http_requests_total{operation="describe_topic",status="404"} 1.0' in lines
    assert 'millpond_http_requests_total{operation="none",status="404"} 1.0' in lines


async def test_requests_are_timed_by_operation(client):
    await client.get("/topics/nothing")
    lines = (await client.get("/metrics")).text.splitlines()
    assert 'millpond_http_request_seconds_count{operation="describe_topic"} 1.0' in lines


async def test_topics_and_groups_are_read_when_the_page_is_requested(clock, connected_to):
    async with running_broker(http=True, clock=clock) as broker, connected_to(broker) as client:
        await broker.produce("orders", b"a", b"b")
        assert 'millpond_topic_end_offset{topic="orders"} 2.0' in (await client.get("/metrics")).text
        await broker.produce("orders", b"c")
        assert 'millpond_topic_end_offset{topic="orders"} 2.0' in (await client.get("/metrics")).text
        clock.advance(READ_EVERY_MS)
        assert 'millpond_topic_end_offset{topic="orders"} 3.0' in (await client.get("/metrics")).text


async def test_a_catalog_that_cannot_be_read_leaves_gaps_and_no_old_values(clock, connected_to, monkeypatch):
    async with running_broker(http=True, clock=clock) as broker, connected_to(broker) as client:
        await broker.produce("orders", b"a")
        assert "millpond_topic_bytes{" in (await client.get("/metrics")).text

        async def fail(_):
            raise CatalogUnavailable(reason="gone")

        monkeypatch.setattr(broker.log, "read", fail)
        clock.advance(READ_EVERY_MS)
        text = (await client.get("/metrics")).text
        assert "millpond_topic_bytes{" not in text
        assert "process_resident_memory_bytes" in text


async def test_metrics_are_prometheus_text(client):
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "# TYPE millpond_" in answer.text


async def test_the_index_says_where_things_are(client, broker):
    found = (await client.get("/")).json()
    assert (found["name"], found["version"]) == ("millpond", __version__)
    assert found["listeners"] == broker.listeners
    assert "/topics/{topic}/produce/{partition}" in found["paths"]


async def test_a_path_that_is_not_there_is_not_found(client):
    for path in ("/nothing", "/topics/", "/topics/a/b/c", "/topics/a/produce/0/"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "UnknownPath")


@pytest.mark.parametrize("path", sorted({each.path for each in OPERATIONS}))
async def test_a_method_that_is_not_there_is_refused_and_the_others_are_named(client, path):
    filled = re.sub(r"\{.*?\}", "0", path)
    declared = {each.method for each in OPERATIONS if each.path == path}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - declared:
        answer = await client.request(method, filled)
        assert (answer.status_code, answer.json()["code"]) == (405, "MethodNotAllowed")
        assert set(answer.headers["allow"].split(", ")) - {"HEAD"} == declared


async def test_head_is_get_without_the_body(client):
    answer, whole = await client.head("/healthz"), await client.get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-length"] == whole.headers["content-length"]
    assert (await client.head("/topics/nowhere/stream")).status_code == 405


async def test_answers_have_a_date(client):
    await client.get("/healthz")
    assert "date" in (await client.get("/healthz")).headers


async def test_the_document_is_served(client):
    answer = await client.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == DOCUMENT | {"info": DOCUMENT["info"] | {"version": __version__}}


def test_the_document_has_every_operation_with_every_parameter_of_its_path():
    for each in OPERATIONS:
        shown = DOCUMENT["paths"][each.path][each.method.lower()]
        assert shown["operationId"] == each.name
        named = {item["name"] for item in shown["parameters"] if item["in"] == "path"}
        assert named == set(re.findall(r"\{(.*?)\}", each.path))
        assert ("requestBody" in shown) == (each.body is not NO_BODY)
        assert set(shown["responses"]) == {str(code) for code in [*each.returns, *refusals(each)]}


def test_every_reference_of_the_document_leads_somewhere():
    referred = set(re.findall(r'"#/components/schemas/(\w+)"', msgspec.json.encode(DOCUMENT).decode()))
    assert referred == set(DOCUMENT["components"]["schemas"]) != set()


def test_every_operation_is_described_in_the_reference():
    page = PAGE.read_text()
    for each in OPERATIONS:
        assert f"| `{each.method} {each.path}` |" in page


def test_every_example_of_the_reference_is_a_path_that_exists():
    called = re.findall(r"127\.0\.0\.1:8000(/[^\s'\"]*)", PAGE.read_text())
    assert called
    for path in called:
        bare = path.partition("?")[0]
        assert any(re.fullmatch(re.sub(r"\{.*?\}", "[^/]+", each.path), bare) for each in OPERATIONS), path


def test_operations_have_names_of_their_own():
    assert len({each.name for each in OPERATIONS}) == len(OPERATIONS)
