"""Dead letters: messages that failed as often as they may, on their way to a topic of their own.

A letter is written to the catalog in the very commit that settles its message; from there it is moved to its topic in
a commit that appends it and removes the row. So it is there once, whatever is killed, and a letter that its topic
cannot take holds up nobody: it waits in the catalog, and the others pass it.
"""

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import Transaction
from millpond.catalog.subscriptions import DeadLetter, Standing, Subscription
from millpond.log import Log
from millpond.model.configs import BY_REFERENCE, LARGE_BY_REFERENCE, PAYLOAD, TAKES_PAYLOADS
from millpond.model.errors import (
    FlushFailed,
    InvalidInput,
    InvalidSubscription,
    MillpondError,
    PayloadsNotTaken,
    TopicExists,
)
from millpond.model.ids import TopicPartition, check_topic_name
from millpond.model.payloads import HEADER as PAYLOAD_HEADER
from millpond.model.subscriptions import RESERVED_HEADERS, Exhausted, SubscriptionConfig
from millpond.model.topics import Topic
from millpond.queues.bodies import CopyBody, has_body, nothing_to_copy, with_bodies_in
from millpond.queues.limits import QueueLimits
from millpond.queues.outcomes import Dead
from millpond.records import NO_OFFSET, NO_TIMESTAMP, Header, Record, build_batch, iter_records

SOURCE_TOPIC: Final = "millpond-source-topic"
SOURCE_PARTITION: Final = "millpond-source-partition"
SOURCE_OFFSET: Final = "millpond-source-offset"
SUBSCRIPTION: Final = "millpond-subscription"
ATTEMPTS: Final = "millpond-attempts"
LETTER_BYTES_MORE: Final = 64 * 1024
"""What the headers of a letter may add to its message."""
BYTES_PER_APPEND: Final = 4 * 1024 * 1024
"""Letters that are moved together; a single larger one is moved all the same."""

logger = logging.getLogger(__name__)


def topic_of(subscription: Subscription, topic: str) -> str:
    return _topic_named(subscription.config, topic, subscription.name)


def check_topic(config: SubscriptionConfig, topic: str, name: str) -> None:
    """Refuse a subscription whose letters could go nowhere, or would be its own messages again."""
    if config.on_exhausted is Exhausted.DEAD_LETTER:
        target = check_topic_name(_topic_named(config, topic, name))
        if target == topic:
            raise InvalidSubscription(reason="its dead letters cannot go to its own topic")


def check_bodies(config: SubscriptionConfig, topic: Topic, target: Topic) -> None:
    """Refuse a topic for letters that cannot take the bodies which messages leave in the store."""
    if (
        config.on_exhausted is Exhausted.DEAD_LETTER
        and topic.config().payloads
        and not target.config().payloads
    ):
        reason = f"topic {target.name!r} cannot take bodies by reference, as {topic.name!r} has them"
        raise InvalidSubscription(reason=reason)


def _topic_named(config: SubscriptionConfig, topic: str, name: str) -> str:
    return config.dead_letter_topic or f"{topic}.{name}.dead"


def letter_of(
    record: Record, dead: Dead, standing: Standing, subscription: Subscription, topic: str, now_ms: int
) -> DeadLetter:
    """With the time of its message; unless that is none, or yet to come, which producers can make it: it is now."""
    kept = [header for header in record.headers if is_public(header[0])]
    added: list[Header] = [
        (SOURCE_TOPIC, topic.encode()),
        (SOURCE_PARTITION, str(standing.partition).encode()),
        (SOURCE_OFFSET, str(record.offset).encode()),
        (SUBSCRIPTION, subscription.name.encode()),
        (ATTEMPTS, str(dead.attempts).encode()),
    ]
    timestamp = min(record.timestamp, now_ms) if record.timestamp >= 0 else NO_TIMESTAMP
    letter = record._replace(headers=(*kept, *added), offset=NO_OFFSET, timestamp=timestamp)
    batch = build_batch([letter], now_ms=now_ms)
    return DeadLetter(standing, record.offset, topic_of(subscription, topic), now_ms, batch)


def is_public(header: str) -> bool:
    """Whether a header is the producer's own, and not one that only the broker may set."""
    return not header.startswith(RESERVED_HEADERS) or header == PAYLOAD_HEADER


class DeadLetters:
    """Moves letters from the catalog to their topics."""

    def __init__(self, log: Log, limits: QueueLimits, copy_body: CopyBody = nothing_to_copy) -> None:
        self._log = log
        self._copy_body = copy_body
        self._limits = limits
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def run(self) -> None:
        while True:
            self._news.clear()
            try:
                await self.move_all()
            except MillpondError as error:
                logger.warning("moving dead letters failed; will retry", extra={"error": str(error)})
            except Exception as error:  # a bug must not end everything that runs beside this
                logger.exception(
                    "unexpected error while moving dead letters; will retry", extra={"error": repr(error)}
                )
            try:
                async with asyncio.timeout(self._limits.dead_letters_every_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def move_all(self) -> None:
        """Look at every letter once, and move those that can be."""
        letters: Sequence[DeadLetter] = ()
        refused: set[str] = set()
        while letters := await self._read(letters[-1] if letters else None):
            targets = sorted({letter.target for letter in letters} - refused)
            for target in targets:
                for some in _cut([letter for letter in letters if letter.target == target]):
                    if target not in refused and not await self._move(target, some):
                        refused.add(target)

    async def _read(self, after: DeadLetter | None) -> list[DeadLetter]:
        limit = self._limits.dead_letters_per_step
        return await self._log.read(lambda tx: catalog.dead_letters(tx, limit, after))

    async def _move(self, target: str, letters: Sequence[DeadLetter]) -> bool:
        """Whether the topic takes letters, though not necessarily each of these."""
        try:
            await self._append(target, letters)
        except (InvalidInput, PayloadsNotTaken) as error:
            if len(letters) > 1:
                return all([await self._move(target, [letter]) for letter in letters])
            logger.warning(
                "dead letter rejected by its topic; will retry",
                extra={
                    "topic": target,
                    "source_partition": letters[0].standing.partition,
                    "source_offset": letters[0].offset,
                    "error": str(error),
                },
            )
        except MillpondError as error:
            logger.warning(
                "appending dead letters failed; will retry",
                extra={"topic": target, "messages": len(letters), "error": str(error)},
            )
            return False
        return True

    async def _append(self, target: str, letters: Sequence[DeadLetter]) -> None:
        where = await self._places(target, letters)
        batches: dict[TopicPartition, list[bytes]] = {}
        for letter in letters:
            batches.setdefault(where[letter], []).append(await self._with_body(letter))
        appends = {place: b"".join(each) for place, each in batches.items()}
        await self._log.append_jointly(appends, lambda tx: _remove(tx, letters))

    async def _places(self, target: str, letters: Sequence[DeadLetter]) -> dict[DeadLetter, TopicPartition]:
        if not self._log.topics.knows(target):
            await self._make(target, {self._payloads_of(_source(_record(letter))) for letter in letters})
        topic = self._log.topics.named(target)
        return {
            letter: TopicPartition(topic.id, letter.standing.partition % topic.partitions)
            for letter in letters
        }

    async def _with_body(self, letter: DeadLetter) -> bytes:
        record = _record(letter)
        if not has_body(record):
            return letter.record
        source = _source(record)
        if (
            self._payloads_of(source) in TAKES_PAYLOADS
            and self._payloads_of(letter.target) not in TAKES_PAYLOADS
        ):
            raise PayloadsNotTaken(topic=letter.target)  # rather than lose the body
        moved = await with_bodies_in(letter.target, source, [record], self._copy_body)
        return build_batch([each._replace(offset=NO_OFFSET) for each in moved])

    def _payloads_of(self, topic: str) -> str | None:
        """Which bodies of a topic lie in the store. Those of one that is gone are gone, too."""
        topics = self._log.topics
        return topics.named(topic).describe_config()[PAYLOAD].value if topics.knows(topic) else None

    async def _make(self, target: str, payloads: Collection[str | None]) -> None:
        """As its first letters want it. It takes bodies if theirs may lie in the store, though none of these does."""
        sizes = [topic.config().max_message_bytes for topic in self._log.topics.all()]
        configs = {"max.message.bytes": str(max(sizes) + LETTER_BYTES_MORE)} if sizes else {}
        for kind in (BY_REFERENCE, LARGE_BY_REFERENCE):
            if kind in payloads:
                configs[PAYLOAD] = kind
        try:
            await self._log.create_topic(target, 1, configs)
        except TopicExists:
            await self._log.refresh()


def _cut(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """In pieces that are not too large for one append."""
    piece: list[DeadLetter] = []
    size = 0
    for letter in letters:
        if piece and size + len(letter.record) > BYTES_PER_APPEND:
            yield piece
            piece, size = [], 0
        piece.append(letter)
        size += len(letter.record)
    if piece:
        yield piece


def _source(letter: Record) -> str:
    return (dict(letter.headers)[SOURCE_TOPIC] or b"").decode()


def _record(letter: DeadLetter) -> Record:
    return next(iter_records(letter.record, decompressed_bytes_max=0))  # we made it, and not compressed


def _remove(tx: Transaction, letters: Sequence[DeadLetter]) -> None:
    if catalog.remove_dead_letters(tx, letters) != len(letters):
        raise FlushFailed("Another broker has moved some of these dead letters.")
