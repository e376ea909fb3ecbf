"""Dead letters: messages that used up their attempts and are moved to a dead-letter topic.

A letter is written to the catalog in the same commit that settles its message. A second commit appends it to its topic
and removes the row, so it is stored exactly once, even if the broker is killed. A letter that its topic cannot accept
stays in the catalog and blocks no other letter.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from hashlib import blake2b
from typing import Final

from millpond.catalog import subscriptions as catalog
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.subscriptions import DeadLetter, StateKey, StoredSubscription
from millpond.log import AppendRole
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
from millpond.model.subscriptions import RESERVED_HEADERS, ExhaustedAction, SubscriptionConfig
from millpond.model.topics import Topic
from millpond.queues.dispatcher_results import Dead
from millpond.queues.limits import QueueLimits
from millpond.queues.payload_copies import CopyBody, has_body, nothing_to_copy, with_bodies_in
from millpond.records import NO_OFFSET, NO_TIMESTAMP, Header, Record, build_batch, iter_records

SOURCE_TOPIC: Final = "millpond-source-topic"
SOURCE_PARTITION: Final = "millpond-source-partition"
SOURCE_OFFSET: Final = "millpond-source-offset"
SUBSCRIPTION: Final = "millpond-subscription"
ATTEMPTS: Final = "millpond-attempts"
LAST_REASON: Final = "millpond-last-reason"
REASONS: Final = "millpond-reasons"
"""A JSON list of the last reasons, the oldest first."""
SHARE_TOPIC: Final = "__dlq.errors.topic"
SHARE_PARTITION: Final = "__dlq.errors.partition"
SHARE_OFFSET: Final = "__dlq.errors.offset"
SHARE_GROUP: Final = "__dlq.errors.group"
SHARE_DELIVERIES: Final = "__dlq.errors.delivery.count"
SHARE_REASON: Final = "__dlq.errors.message"
"""Kafka's names of the same for dead letters of share groups (KIP-1191)."""
SHARE_HEADERS: Final = frozenset(
    {SHARE_TOPIC, SHARE_PARTITION, SHARE_OFFSET, SHARE_GROUP, SHARE_DELIVERIES, SHARE_REASON}
)
TOPIC_NAME_LENGTH_MAX: Final = 249
LETTER_OVERHEAD_BYTES: Final = 64 * 1024
"""Bytes that the headers of a letter may add to its message."""
BYTES_PER_APPEND: Final = 4 * 1024 * 1024
CreateTopic = Callable[[str, int, dict[str, str]], Awaitable[Topic]]
"""Creates a topic: name, partition count, configs."""
"""Size of letters that are moved in one append; a single larger letter is moved by itself."""

logger = logging.getLogger(__name__)


def topic_of(subscription: StoredSubscription, topic: str) -> str:
    """A share group names one topic for the dead letters of all its topics. Its own dead letters cannot go to it, and
    default names may be too long: nothing has checked either when the group began to read the topic."""
    if subscription.share_group and subscription.config.dead_letter_topic in ("", topic):
        return _possible_default(topic, subscription.name)
    return _topic_named(subscription.config, topic, subscription.name)


def check_topic(config: SubscriptionConfig, topic: str, name: str) -> None:
    """Reject a subscription whose dead-letter topic has an invalid name or is the subscription's own topic."""
    if config.on_exhausted is ExhaustedAction.DEAD_LETTER:
        target = check_topic_name(_topic_named(config, topic, name))
        if target == topic:
            raise InvalidSubscription(reason="its dead letters cannot go to its own topic")


def check_bodies(config: SubscriptionConfig, topic: Topic, target: Topic) -> None:
    """Reject a dead-letter topic that cannot accept bodies by reference when the source topic has them."""
    if (
        config.on_exhausted is ExhaustedAction.DEAD_LETTER
        and topic.config().payloads
        and not target.config().payloads
    ):
        reason = f"topic {target.name!r} cannot take bodies by reference, as {topic.name!r} has them"
        raise InvalidSubscription(reason=reason)


def _topic_named(config: SubscriptionConfig, topic: str, name: str) -> str:
    return config.dead_letter_topic or default_topic(topic, name)


def default_topic(topic: str, name: str) -> str:
    """Two subscriptions never have the same one. `a.b` of topic `c` and `b` of `c.a` would, so a name with dots is
    followed by its length."""
    return f"{topic}.{name}.dead{len(name) if '.' in name else ''}"


def _possible_default(topic: str, name: str) -> str:
    wanted = default_topic(topic, name)
    if len(wanted) <= TOPIC_NAME_LENGTH_MAX:
        return wanted
    digest = blake2b(wanted.encode(), digest_size=16).hexdigest()
    return f"{topic[: TOPIC_NAME_LENGTH_MAX - len(digest) - len('..dead')]}.{digest}.dead"


def letter_of(
    record: Record, dead: Dead, state_key: StateKey, subscription: StoredSubscription, topic: str, now_ms: int
) -> DeadLetter:
    """The letter keeps its message's timestamp. It gets the current time instead if the message has no timestamp or one
    in the future, since producers can set any."""
    kept = [header for header in record.headers if is_public(header[0])]
    added: list[Header] = [
        (SOURCE_TOPIC, topic.encode()),
        (SOURCE_PARTITION, str(state_key.partition).encode()),
        (SOURCE_OFFSET, str(record.offset).encode()),
        (SUBSCRIPTION, subscription.name.encode()),
        (ATTEMPTS, str(dead.attempts).encode()),
    ]
    if dead.reasons:
        reasons = json.dumps(dead.reasons, ensure_ascii=False)
        added += [(LAST_REASON, dead.reasons[-1].encode()), (REASONS, reasons.encode())]
    if subscription.share_group:
        kept = [header for header in kept if header[0] not in SHARE_HEADERS]
        added += _share_headers(record, dead, state_key, subscription, topic)
    timestamp = min(record.timestamp, now_ms) if record.timestamp >= 0 else NO_TIMESTAMP
    letter = record._replace(headers=(*kept, *added), offset=NO_OFFSET, timestamp=timestamp)
    batch = build_batch([letter], now_ms=now_ms)
    return DeadLetter(state_key, record.offset, topic_of(subscription, topic), now_ms, batch)


def _share_headers(
    record: Record, dead: Dead, state_key: StateKey, subscription: StoredSubscription, topic: str
) -> list[Header]:
    return [
        (SHARE_TOPIC, topic.encode()),
        (SHARE_PARTITION, str(state_key.partition).encode()),
        (SHARE_OFFSET, str(record.offset).encode()),
        (SHARE_GROUP, subscription.share_group.encode()),
        (SHARE_DELIVERIES, str(dead.attempts).encode()),
        (SHARE_REASON, dead.reasons[-1].encode() if dead.reasons else b""),
    ]


def is_public(header: str) -> bool:
    """Whether a header belongs to the producer, and is not reserved for the broker."""
    return not header.startswith(RESERVED_HEADERS) or header == PAYLOAD_HEADER


class DeadLetters:
    """Moves letters from the catalog to their topics."""

    def __init__(
        self,
        log: AppendRole,
        limits: QueueLimits,
        copy_body: CopyBody = nothing_to_copy,
        create_topic: CreateTopic | None = None,
    ) -> None:
        self._log = log
        self._create_topic = create_topic or log.create_topic
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
            except Exception as error:  # a bug must not stop the other services of this broker
                logger.exception(
                    "unexpected error while moving dead letters; will retry", extra={"error": error}
                )
            try:
                async with asyncio.timeout(self._limits.dead_letters_every_ms / 1000):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def move_all(self) -> None:
        """Try once to move every dead letter that is waiting."""
        letters: Sequence[DeadLetter] = ()
        refused: set[str] = set()
        while letters := await self._read(letters[-1] if letters else None):
            targets = sorted({letter.target for letter in letters} - refused)
            for target in targets:
                for some in _split_by_size([letter for letter in letters if letter.target == target]):
                    if target not in refused and not await self._move(target, some):
                        refused.add(target)

    async def _read(self, after: DeadLetter | None) -> list[DeadLetter]:
        limit = self._limits.dead_letters_per_step
        return await self._log.read(lambda tx: catalog.dead_letters(tx, limit, after))

    async def _move(self, target: str, letters: Sequence[DeadLetter]) -> bool:
        """Returns whether the topic accepts letters in general, even if it refused some of these."""
        try:
            await self._append(target, letters)
        except (InvalidInput, PayloadsNotTaken) as error:
            if len(letters) > 1:
                return all([await self._move(target, [letter]) for letter in letters])
            logger.warning(
                "dead letter rejected by its topic; will retry",
                extra={
                    "topic": target,
                    "source_partition": letters[0].state_key.partition,
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
        target_of = await self._target_partitions(target, letters)
        batches: dict[TopicPartition, list[bytes]] = {}
        for letter in letters:
            batches.setdefault(target_of[letter], []).append(await self._with_body(letter))
        appends = {topic_partition: b"".join(each) for topic_partition, each in batches.items()}
        await self._log.append_jointly(appends, lambda tx: _remove(tx, letters))

    async def _target_partitions(
        self, target: str, letters: Sequence[DeadLetter]
    ) -> dict[DeadLetter, TopicPartition]:
        if not self._log.topics.knows(target):
            await self._make(target, {self._payloads_of(_source(_record(letter))) for letter in letters})
        topic = self._log.topics.named(target)
        return {
            letter: TopicPartition(topic.id, letter.state_key.partition % topic.partitions)
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
            raise PayloadsNotTaken(topic=letter.target)  # otherwise the body would be lost
        moved = await with_bodies_in(letter.target, source, [record], self._copy_body)
        return build_batch([each._replace(offset=NO_OFFSET) for each in moved])

    def _payloads_of(self, topic: str) -> str | None:
        """The `payload` config of a topic, which says which bodies are in the store. None if the topic was deleted:
        its bodies are deleted, too."""
        topics = self._log.topics
        return topics.named(topic).describe_config()[PAYLOAD].value if topics.knows(topic) else None

    async def _make(self, target: str, payloads: Collection[str | None]) -> None:
        """Create the dead-letter topic. It accepts bodies by reference if a source topic of its first letters does,
        even if none of these letters has such a body."""
        sizes = [topic.config().max_message_bytes for topic in self._log.topics.all()]
        configs = {"max.message.bytes": str(max(sizes) + LETTER_OVERHEAD_BYTES)} if sizes else {}
        for kind in (BY_REFERENCE, LARGE_BY_REFERENCE):
            if kind in payloads:
                configs[PAYLOAD] = kind
        try:
            await self._create_topic(target, 1, configs)
        except TopicExists:
            await self._log.refresh()


def _split_by_size(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Split letters into groups that fit one append."""
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
    return next(iter_records(letter.record, decompressed_bytes_max=0))  # the broker built it, uncompressed


def _remove(tx: CatalogTransaction, letters: Sequence[DeadLetter]) -> None:
    if catalog.remove_dead_letters(tx, letters) != len(letters):
        raise FlushFailed("Another broker has moved some of these dead letters.")
