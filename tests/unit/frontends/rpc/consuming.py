"""A consumer of the `Queue` service, message by message."""

import asyncio

import grpc

from millpond.stubs import log_pb2
from millpond.stubs import queue_pb2 as pb

WAIT_SECONDS_MAX = 30
EVENTS = ("attached", "deliveries", "revoked", "lost")
OK, STALE, UNKNOWN = pb.ANSWER_OK, pb.ANSWER_STALE, pb.ANSWER_UNKNOWN


class Consuming:
    def __init__(self, wire):
        self.stream = wire("Queue.Subscribe", timeout=120)
        self._requests = 0
        self._heard = []

    @classmethod
    async def attached(cls, wire, subscription="s", consumer="c", *, credit=0, bytes_credit=0, **fields):
        found = cls(wire)
        await found.say(attach=pb.Attach(topic="t", subscription=subscription, consumer=consumer, **fields))
        found.attached_as = await found.hear("attached")
        if credit:
            await found.say(credit=pb.Credit(messages=credit, bytes=bytes_credit))
        return found

    async def say(self, **what):
        await self.stream.write(pb.SubscribeRequest(**what))

    async def hear_next(self):
        """What it is, and it."""
        if not self._heard:
            await self._listen()
        return self._heard.pop(0)

    async def hear(self, kind):
        """The next of its kind; what else comes is kept for later."""
        while not (known := [each for each in self._heard if each[0] == kind]):
            await self._listen()
        self._heard.remove(known[0])
        return known[0][1]

    async def _listen(self):
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            response = await self.stream.read()
        assert response is not grpc.aio.EOF
        self._heard += parts_of(response)

    async def deliveries(self, count):
        found = []
        while len(found) < count:
            found += (await self.hear("deliveries")).deliveries
        assert len(found) == count
        return found

    async def answer(self, **what):
        self._requests += 1
        await self.say(answers=pb.Answers(request=self._requests, **what))
        while (results := await self.hear("results")).request != self._requests:
            pass
        return list(results.answers)

    async def refusal(self):
        """The error that the stream ends with; what comes before it is passed over."""
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while await self.stream.read() is not grpc.aio.EOF:
                    pass
        except grpc.aio.AioRpcError as error:
            return error
        raise AssertionError("it ended in order")

    async def detach(self):
        await self.say(detach=pb.Detach())
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while await self.stream.read() is not grpc.aio.EOF:
                pass

    def break_off(self):
        self.stream.cancel()


def parts_of(response):
    """What has happened, and after it the results that came with it."""
    found = [(kind, getattr(response, kind)) for kind in EVENTS if response.HasField(kind)]
    return [*found, *(("results", each) for each in response.results)]


async def subscription(wire, name="s", topic="t", **config):
    texts = {key: str(value) for key, value in config.items()}
    await wire("Queue.CreateSubscription", pb.CreateSubscriptionRequest(topic=topic, name=name, config=texts))


def values(deliveries):
    return [each.value for each in deliveries]


def message(value=b"v", key=None, **headers):
    made = log_pb2.NewMessage(value=value, key=key)
    for name, content in headers.items():
        made.headers.add(name=name.replace("_", "-"), value=content)
    return made


async def produce(wire, *messages, topic="t"):
    await wire("Log.Produce", log_pb2.ProduceRequest(topic=topic, messages=messages, partition=0))
