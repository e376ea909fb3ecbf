"""Consumers that say whatever a test tells them to, and a subscription to attack."""

import itertools
import queue

import grpc
import pytest
from tests.unit.frontends.rpc.consuming import parts_of

from millpond.stubs import admin_pb2, log_pb2
from millpond.stubs import queue_pb2 as pb


class Consumer:
    """A stream that says whatever it is told to. `hear` gives the next response of a kind."""

    def __init__(self, client, **attach):
        self._say = queue.SimpleQueue()
        requests = iter(self._say.get, None)
        data = (each.SerializeToString() if not isinstance(each, bytes) else each for each in requests)
        self.stream = client.call("stream_stream", "Queue.Subscribe")(data, timeout=600)
        self._numbers = itertools.count(1)
        self._heard = []
        if attach:
            self.say(attach=attach)
            self.hear("attached")

    def say(self, raw=None, **what):
        self._say.put(raw if raw is not None else pb.SubscribeRequest(**what))

    def end(self):
        """Half of it: nothing more will be said."""
        self._say.put(None)

    def hear(self, kind):
        """The next of its kind; what comes before it is passed over."""
        while True:
            while self._heard:
                what, found = self._heard.pop(0)
                if what == kind:
                    return found
            self._heard += parts_of(pb.SubscribeResponse.FromString(next(self.stream)))

    def deliveries(self, count):
        found = []
        while len(found) < count:
            found += self.hear("deliveries").deliveries
        return found

    def answer(self, **what):
        number = next(self._numbers)
        self.say(answers={"request": number, **what})
        while (results := self.hear("results")).request != number:
            pass
        return list(results.answers)

    def status(self):
        """What it ends with."""
        try:
            for _ in self.stream:
                pass
        except grpc.RpcError as error:
            return error.code()
        return grpc.StatusCode.OK


class Queues:
    """A broker under attack, with a topic `t` and a subscription `s`."""

    def __init__(self, siege):
        self.siege = siege
        self.client = siege.attacker()
        siege.create_topic("t", partitions=1)
        self.subscribe("s")

    def close(self):
        """The next test gets a topic of its own under the same name."""
        self.client.ask("Admin.DeleteTopic", admin_pb2.DeleteTopicRequest(name="t").SerializeToString())

    def ask(self, name, request):
        status, answers = self.client.ask(name, request.SerializeToString())
        assert status is grpc.StatusCode.OK, (name, status)
        return answers[0]

    def subscribe(self, name, **config):
        texts = {key: str(value) for key, value in config.items()}
        self.ask("Queue.CreateSubscription", pb.CreateSubscriptionRequest(topic="t", name=name, config=texts))

    def produce(self, count, size=1):
        for _ in range(count):
            message = log_pb2.NewMessage(value=bytes(size))
            self.ask("Log.Produce", log_pb2.ProduceRequest(topic="t", messages=[message]))

    def consumer(self, name="c", subscription="s", credit=0, **fields):
        attach = {"topic": "t", "subscription": subscription, "consumer": name, **fields}
        found = Consumer(self.siege.attacker(), **attach)
        if credit:
            found.say(credit={"messages": credit})
        return found

    def consumers(self):
        request = pb.DescribeSubscriptionRequest(topic="t", name="s")
        state = pb.SubscriptionState.FromString(self.ask("Queue.DescribeSubscription", request))
        return [each.name for each in state.consumers]


@pytest.fixture(scope="module")
def besieged_queues(attacked_broker):
    """One broker for all tests of a module."""
    with attacked_broker("hostile consumers") as siege:
        yield siege


@pytest.fixture
def queues(besieged_queues):
    queues = Queues(besieged_queues)
    yield queues
    queues.close()
