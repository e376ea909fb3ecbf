"""A member of a share group over the wire, and the group's subscription without its group."""

import asyncio

from tests.unit.frontends.kafka.wire import ANSWER_SECONDS_MAX, Client

from millpond.catalog import subscriptions as catalog
from millpond.model.share_groups import subscription_name
from millpond.model.subscriptions import SubscriptionConfig
from millpond.protocol.messages import share_fetch as wire
from millpond.records import iter_records

GROUP = "workers"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
FINAL = -1


async def share(log, topic="orders", group=GROUP, floors=None):
    """The group has state in the topic, as when one of its members has subscribed to it."""
    known = log.topics.named(topic)
    floors = floors or dict.fromkeys(range(known.partitions), 0)
    name = subscription_name(group)

    def create(tx):
        catalog.create(
            tx, known.id, name, SubscriptionConfig(), floors, topic=topic, now_ms=1, share_group=group
        )

    await log.write(create)


def ack(first, last=None, *types):
    last = first if last is None else last
    return wire.AcknowledgementBatch(
        first_offset=first, last_offset=last, acknowledge_types=list(types or (ACCEPT,))
    )


class Part:
    """What a response has of one partition, with the acquired messages by offset: value and delivery count."""

    def __init__(self, part):
        self.part = part
        self.error, self.ack_error = part.error_code, part.acknowledge_error_code
        self.ranges = [
            (each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records
        ]
        records = {
            each.offset: each.value
            for buffer in part.records
            for each in iter_records(buffer, decompressed_bytes_max=1 << 20)
        }
        self.sent = sorted(records)
        self.messages = {
            offset: (records[offset], count)
            for first, last, count in self.ranges
            for offset in range(first, last + 1)
        }

    @property
    def values(self):
        return [value for value, _ in self.messages.values()]


class Member:
    def __init__(self, client, topic_id, member="m1", group=GROUP, version=2):
        self.client, self.topic_id, self.version = client, topic_id, version
        self.named = {"group_id": group, "member_id": member}
        self.epoch = 0

    async def fetch(self, acks=(), *, partitions=(0,), forget=(), epoch=None, **fields):
        """`acks` are of partition 0, or by partition."""
        acks = acks if isinstance(acks, dict) else {0: acks}
        numbers = sorted({*partitions, *(number for number, given in acks.items() if given)})
        parts = [
            wire.ShareFetchPartition(partition_index=each, acknowledgement_batches=list(acks.get(each, ())))
            for each in numbers
        ]
        limits = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        request = wire.ShareFetchRequest(
            **self.named,
            **{
                "share_session_epoch": self.epoch if epoch is None else epoch,
                "topics": [wire.ShareFetchTopic(topic_id=self.topic_id, partitions=parts)] if parts else [],
                "forgotten_topics_data": [
                    wire.ShareForgottenTopic(topic_id=self.topic_id, partitions=list(forget))
                ]
                if forget
                else [],
                **limits,
                **fields,
            },
        )
        self.response = await self.client.send(request, self.version)
        if epoch is None and not self.response.error_code:
            self.epoch += 1
        return {
            part.partition_index: Part(part) for topic in self.response.responses for part in topic.partitions
        }

    async def take(self, acks=(), **fields):
        """What is acquired of partition 0."""
        return (await self.until(acks, **fields)).messages

    async def until(self, acks=(), **fields):
        """Fetch until partition 0 has messages."""
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            return await self._until(acks, fields)

    async def _until(self, acks, fields):
        while True:
            found = await self.fetch(acks, **{"max_wait_ms": 10_000, **fields})
            if 0 in found and (found[0].messages or found[0].error or found[0].ack_error):
                return found[0]
            acks = ()

    async def acknowledge(self, acks, *, epoch=None, renew=False):
        acks = acks if isinstance(acks, dict) else {0: acks}
        parts = [
            wire.ShareAcknowledgePartition(partition_index=each, acknowledgement_batches=list(given))
            for each, given in acks.items()
        ]
        request = wire.ShareAcknowledgeRequest(
            **self.named,
            share_session_epoch=self.epoch if epoch is None else epoch,
            is_renew_ack=renew,
            topics=[wire.ShareAcknowledgeTopic(topic_id=self.topic_id, partitions=parts)],
        )
        self.response = await self.client.send(request, self.version)
        if epoch is None and not self.response.error_code:
            self.epoch += 1
        return {
            part.partition_index: part.error_code
            for topic in self.response.responses
            for part in topic.partitions
        }


class Sharing:
    """A broker with a topic and a share group, and members on connections of their own."""

    def __init__(self, interface, stack, topic):
        self.interface, self.stack, self.topic = interface, stack, topic

    async def member(self, name="m1", version=2, group=GROUP):
        client = await self.stack.enter_async_context(Client(self.interface.broker.kafka.listener))
        return Member(client, self.topic.id, name, group, version)
