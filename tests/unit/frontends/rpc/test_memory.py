"""What requests and answers may take of the broker's memory: refused past the limit, or made smaller near it."""

import asyncio

import grpc
import pytest
from tests.unit.frontends.rpc.wire import details_of, serving

from millpond.frontends.rpc.limits import RpcLimits
from millpond.frontends.rpc.memory import RequestAdmission, ResponseMemory
from millpond.model.errors import Overloaded
from millpond.settings import Settings
from millpond.stubs import log_pb2
from millpond.testing import Faults

KIB = 1024


def test_a_request_past_the_limit_is_refused_until_another_is_done():
    admission = RequestAdmission(100)
    with admission.admitted(60):
        with pytest.raises(Overloaded), admission.admitted(50):
            pass
        with admission.admitted(40):
            assert admission.held_bytes == 100
    with admission.admitted(50):
        assert admission.held_bytes == 50
    assert admission.held_bytes == 0


def test_a_single_request_is_let_in_whatever_its_size():
    admission = RequestAdmission(100)
    with admission.admitted(1_000), pytest.raises(Overloaded), admission.admitted(1):
        pass
    assert admission.held_bytes == 0


def test_answers_get_smaller_the_more_there_are_but_not_below_the_least():
    answers = ResponseMemory(16_000, 100)
    sizes = []
    for _ in range(200):
        sizes.append(answers.room(10_000))
        answers.hold(sizes[-1])
    assert sizes[0] == 1_000
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == 100
    assert answers.held_bytes < 16_000 + 200 * 100
    assert answers.room(5) == 5


@pytest.fixture
def narrow(monkeypatch):
    limits = RpcLimits(
        requests_bytes_max=100 * KIB, responses_bytes_max=1_600 * KIB, response_bytes_min=2 * KIB
    )
    monkeypatch.setattr(Settings, "rpc_limits", lambda _: limits)


@pytest.mark.usefixtures("narrow")
async def test_requests_that_do_not_fit_are_told_to_come_again():
    faults = Faults()
    async with serving(faults=faults, inline_bytes_max=0) as (_, wire):
        await wire.produce("topic", b"0")
        slow = faults.hold("append")
        first = asyncio.ensure_future(wire.produce("topic", bytes(90 * KIB)))
        await asyncio.to_thread(slow.wait_reached)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await wire.produce("topic", bytes(20 * KIB))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        _, info, retry = details_of(refused.value)
        assert (info.reason, retry is not None) == ("OVERLOADED", True)
        slow.release()
        assert (await first).numbers == [2]
        assert (await wire.produce("topic", bytes(20 * KIB))).numbers == [3]


@pytest.mark.usefixtures("narrow")
async def test_answers_are_counted_until_they_are_sent_and_no_longer():
    async with serving() as (broker, wire):
        for _ in range(64):
            await wire.produce("topic", bytes(10 * KIB))
        answers = broker.rpc._log._response_memory
        assert len((await wire.poll("topic")).messages) == 9  # a sixteenth of all
        answers.hold(1_590 * KIB)
        assert len((await wire.poll("topic")).messages) == 1
        answers.hold(-1_590 * KIB)
        following = wire("Log.Consume", log_pb2.ConsumeRequest(topic="topic", until_end=True))
        assert sum([len(each.messages) async for each in following]) == 64
        cancelled = wire("Log.Consume", log_pb2.ConsumeRequest(topic="topic"))
        await cancelled.read()
        cancelled.cancel()
        async with asyncio.timeout(30):
            while answers.held_bytes:
                await asyncio.sleep(0.005)
