"""Guards: the rights of a call while it lasts."""

import asyncio
from types import SimpleNamespace as Request

import pytest
from tests.unit.security.test_requirements import access, read

from millpond.model.acls import AclOperation, ResourceType
from millpond.model.errors import AuthenticationFailed, TopicNotAuthorized
from millpond.security.guards import Guard, Guards
from millpond.security.requirements import AUTHENTICATED, Needs, needs

READ_TOPIC = Needs(AclOperation.READ, ResourceType.TOPIC, of="topic")
GRANTED = (AclOperation.READ, ResourceType.TOPIC, "a")


class Revocable:
    """An access whose credential can end."""

    def __init__(self, granted):
        self._granted = granted
        self.is_valid = True

    def check_valid(self):
        if not self.is_valid:
            raise AuthenticationFailed

    def require(self, *right):
        self._granted.require(*right)


def guard(*rights, rule=None):
    revocable = Revocable(access(*rights))
    return Guard(revocable, rule or needs(READ_TOPIC), read), revocable


def test_a_later_request_that_names_nothing_is_about_the_same_resource():
    guarded, _ = guard(GRANTED)
    guarded.require(Request(topic="a"))
    guarded.require(Request())
    with pytest.raises(TopicNotAuthorized):
        guarded.require(Request(topic="b"))


def test_a_first_request_that_names_nothing_needs_a_right_on_every_name():
    guarded, _ = guard(GRANTED)
    with pytest.raises(TopicNotAuthorized):
        guarded.require(Request())
    everything, _ = guard((AclOperation.READ, ResourceType.TOPIC, "*"))
    everything.require(Request())


def test_resources_of_earlier_requests_do_not_matter_if_each_request_names_its_own():
    guarded, _ = guard(GRANTED, rule=needs(READ_TOPIC, per_request=True))
    guarded.require(Request(topic="a"))
    with pytest.raises(TopicNotAuthorized):
        guarded.require(Request())


def test_a_credential_that_has_ended_is_noticed_by_each_check():
    guarded, revocable = guard(rule=AUTHENTICATED)
    guarded.require(Request())
    guarded.check()
    revocable.is_valid = False
    for check in (guarded.check, lambda: guarded.require(Request())):
        with pytest.raises(AuthenticationFailed):
            check()


async def counting(count, ended):
    try:
        for each in range(count):
            yield each
        await asyncio.Event().wait()
    finally:
        ended.append(True)


async def test_a_stream_that_waits_ends_at_the_sweep_and_is_closed():
    guards, ended = Guards(), []
    guarded, revocable = guard(rule=AUTHENTICATED)
    stream = guards.while_allowed(counting(1, ended), guarded)
    assert await anext(stream) == 0
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    guards.sweep()
    await asyncio.sleep(0)
    assert not waiting.done()
    revocable.is_valid = False
    guards.sweep()
    with pytest.raises(AuthenticationFailed):
        await waiting
    assert ended == [True]
    assert guards._streams == set()


async def test_what_a_stream_has_ready_is_not_delivered_when_the_credential_has_ended():
    guards, ended = Guards(), []
    guarded, revocable = guard(rule=AUTHENTICATED)
    stream = guards.while_allowed(counting(3, ended), guarded)
    assert await anext(stream) == 0
    revocable.is_valid = False
    with pytest.raises(AuthenticationFailed):
        await anext(stream)
    assert ended == [True]


async def test_a_stream_that_ends_by_itself_or_is_closed_is_no_longer_watched():
    guards, ended = Guards(), []
    guarded, _ = guard(rule=AUTHENTICATED)

    async def short():
        yield 1

    assert [each async for each in guards.while_allowed(short(), guarded)] == [1]
    stream = guards.while_allowed(counting(2, ended), guarded)
    assert await anext(stream) == 0
    assert len(guards._streams) == 1
    await stream.aclose()
    assert (guards._streams, ended) == (set(), [True])


async def test_a_timeout_of_the_stream_itself_is_passed_on():
    async def late():
        raise TimeoutError("its own")
        yield

    guarded, _ = guard(rule=AUTHENTICATED)
    with pytest.raises(TimeoutError, match="its own"):
        await anext(Guards().while_allowed(late(), guarded))


async def test_a_stream_that_is_slow_to_end_may_be_swept_again():
    guards, may_end = Guards(), asyncio.Event()
    guarded, revocable = guard(rule=AUTHENTICATED)

    async def slow():
        try:
            await asyncio.Event().wait()
            yield
        finally:
            await may_end.wait()

    waiting = asyncio.ensure_future(anext(guards.while_allowed(slow(), guarded)))
    for _ in range(3):
        await asyncio.sleep(0)
    revocable.is_valid = False
    for _ in range(3):
        guards.sweep()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(AuthenticationFailed):
        await waiting
