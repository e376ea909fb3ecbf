"""The parts of a partition's queue, over a log that is a list."""

from types import SimpleNamespace

import pytest

from millpond.catalog.subscriptions import StateKey, StoredSubscription
from millpond.model.subscriptions import SubscriptionConfig
from millpond.observability.metrics import Metrics
from millpond.queues.addressing import Addressing
from millpond.queues.deliverer import Deliverer
from millpond.queues.dispatcher import Dispatcher
from millpond.queues.dispatcher_state import ConsumerCredit
from millpond.queues.feed import FeedChunk
from millpond.queues.limits import QueueLimits
from millpond.queues.partition_saves import PartitionSaves
from millpond.queues.read_ahead import ReadAhead
from millpond.queues.subscribed_partition import SubscribedPartition
from millpond.records import Record

TOPIC_ID = b"t" * 16


class ListedLog:
    """A feed whose messages are given, a few for each read; it counts its reads."""

    def __init__(self, per_read):
        self.records, self.log_start, self.per_read, self.reads = {}, 0, per_read, []
        self.refusal = None

    def append(self, *values, key=None):
        for value in values:
            offset = len(self.records)
            self.records[offset] = Record(value, key, offset=offset, timestamp=1)

    async def read(self, topic_partition, offset):
        self.reads.append(offset)
        if self.refusal is not None:
            raise self.refusal
        end = max(offset, min(offset + self.per_read, len(self.records)))
        found = [self.records[each] for each in range(offset, end) if self.records[each] is not None]
        return FeedChunk(found, end, self.log_start)


class Listener:
    """A consumer that notes what it hears."""

    def __init__(self):
        self.delivered, self.revoked, self.lost, self.credit_returned = [], [], [], 0

    def deliver(self, partition, epoch, deliveries):
        self.delivered += [each.record.value for each in deliveries]

    def revoke(self, partition, epoch, revoked):
        self.revoked += [each.offset for each in revoked]

    def on_partition_lost(self, partition, error):
        self.lost.append((partition, error))

    def on_credit_returned(self):
        self.credit_returned += 1


@pytest.fixture
def parts():
    """Makes them; `limits` and `config` are those that a test is about."""

    def make(per_read=2, limits=None, **config):
        values = SubscriptionConfig(**config)
        subscription = StoredSubscription(b"s" * 16, TOPIC_ID, "billing", values, 1, 0)
        partition = SubscribedPartition(subscription, StateKey(subscription.id, "", 3), "orders")
        made = SimpleNamespace(feed=ListedLog(per_read), dispatcher=Dispatcher(values), woken=0, dirty=0)
        made.metrics = Metrics().queues
        limits = limits or QueueLimits()

        def wake():
            made.woken += 1

        def mark_dirty():
            made.dirty += 1

        made.read_ahead = ReadAhead(
            made.feed,
            partition,
            made.dispatcher,
            Addressing(b"secret", TOPIC_ID),
            limits=limits,
            metrics=made.metrics,
        )
        made.deliverer = Deliverer(
            made.dispatcher,
            made.read_ahead,
            3,
            now=lambda: 0,
            log_start=lambda: made.feed.log_start,
            wake=wake,
            limits=limits,
            metrics=made.metrics,
        )
        made.saves = PartitionSaves(
            partition,
            made.dispatcher,
            made.read_ahead,
            now=lambda: 0,
            mark_dirty=mark_dirty,
            wake=wake,
            metrics=made.metrics,
        )
        return made

    return make


@pytest.fixture
def attach():
    def attach(parts, name="anna", credit=10):
        listener, room = Listener(), ConsumerCredit()
        room.add(credit)
        parts.deliverer.attach(name, listener, room)
        return listener, room

    return attach
