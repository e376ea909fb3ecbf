"""What producers of the client library were answered, compared with what is stored."""

import asyncio
from collections import Counter

from millpond import Consumer
from millpond.model.errors import MillpondError


class Ledger:
    """What producers were told: where each acknowledged message went, and what may be stored all the same."""

    def __init__(self):
        self.placed = {}
        self.refused = Counter()

    def note(self, value, sent):
        try:
            self.placed[value] = sent.result()
        except MillpondError as error:
            self.refused[type(error).__name__] += 1

    async def submit(self, producer, value):
        """None if it was refused at once, such as by a broker that says nothing of the topic in time."""
        try:
            return await producer.submit(value)
        except MillpondError as error:
            self.refused[type(error).__name__] += 1
            return None

    async def note_async(self, value, future):
        try:
            self.placed[value] = await future
        except MillpondError as error:
            self.refused[type(error).__name__] += 1

    def check(self, stored):
        """`stored` are the messages of a topic. Returns (lost, misplaced, duplicates, disordered)."""
        topic_partition = {message.value: (message.partition, message.number) for message in stored}
        lost = sum(value not in topic_partition for value in self.placed)
        misplaced = sum(
            value in topic_partition and topic_partition[value] != tuple(at)
            for value, at in self.placed.items()
        )
        return lost, misplaced, len(stored) - len(topic_partition), count_out_of_order(stored)


def count_out_of_order(stored):
    """How often a producer's later message stands before an earlier one in its partition. Values are b"name:number"."""
    last, wrong = {}, 0
    for message in stored:
        name, number = message.value.split(b":")[:2]
        key = name, message.partition
        wrong += int(number) <= last.get(key, -1)
        last[key] = int(number)
    return wrong


def read_all(topic, address):
    """Every message of a topic, to the end."""
    stored = []
    with Consumer(topic, address=address) as consumer:
        while True:
            messages = consumer.poll(messages_max=10_000).messages
            if not messages:
                return stored
            stored.extend(messages)


async def in_thread(function, *arguments):
    return await asyncio.to_thread(function, *arguments)
