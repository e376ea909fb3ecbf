"""Redrive: returns dead letters to their source topic, each once, and only for the subscription that gave them up.

A letter is appended to its source topic with a header that addresses it to one subscription; others skip it. The same
commit stores the progress of the redrive, so an interrupted redrive repeats nothing.
"""

from collections.abc import Sequence
from typing import Final

from millpond.catalog import partitions
from millpond.catalog import subscriptions as catalog
from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.subscriptions import StoredSubscription
from millpond.log import AppendRole
from millpond.model.errors import SubscriptionBusy, UnknownTopic
from millpond.model.ids import TopicPartition
from millpond.model.topics import Topic
from millpond.queues import deadletters
from millpond.queues.addressing import Addressing
from millpond.queues.deadletters import is_public
from millpond.queues.feed import Feed
from millpond.queues.payload_copies import CopyBody, nothing_to_copy, with_bodies_in
from millpond.records import Record, build_batch

PARTITION_DIGITS_MAX: Final = 9


async def redrive(
    log: AppendRole,
    feed: Feed,
    subscription: StoredSubscription,
    topic: Topic,
    addressing: Addressing,
    messages_max: int,
    now_ms: int,
    copy_body: CopyBody = nothing_to_copy,
) -> int:
    """Returns how many letters were sent back: at most `messages_max`, or with 0 all that exist now."""
    name = deadletters.topic_of(subscription, topic.name)
    try:
        letters = await log.topic(name)
    except UnknownTopic:
        return 0
    done, rows = await log.read(
        lambda tx: (
            catalog.redriven(tx, subscription.id, letters.id),
            partitions.of_topic(tx, letters.id),
        )
    )
    count = 0
    for row in rows:
        topic_partition, end = row.topic_partition, row.end_offset
        offset = done.get(topic_partition.partition, 0)
        while offset < end and (not messages_max or count < messages_max):
            piece = await feed.read_stored(topic_partition, offset)
            if piece.next_offset <= offset:
                break
            room = messages_max - count if messages_max else len(piece.records)
            own = [each for each in piece.records if _is_from(each, subscription, topic)]
            chosen, rest = own[:room], own[room:]
            revived = await with_bodies_in(topic.name, name, chosen, copy_body)
            before, offset = offset, rest[0].offset if rest else piece.next_offset
            remember = _remembering(subscription, topic_partition, before, offset)
            marked = [_revived(letter, subscription, addressing, now_ms) for letter in revived]
            await _send_back(log, topic, marked, remember, now_ms)
            count += len(chosen)
    return count


def _is_from(letter: Record, subscription: StoredSubscription, topic: Topic) -> bool:
    headers = dict(letter.headers)
    return (
        headers.get(deadletters.SUBSCRIPTION) == subscription.name.encode()
        and headers.get(deadletters.SOURCE_TOPIC) == topic.name.encode()
    )


async def _send_back(
    log: AppendRole,
    topic: Topic,
    letters: Sequence[tuple[int, Record]],
    remember: CommitOperation,
    now_ms: int,
) -> None:
    """Append each letter as a separate batch: one batch of all could exceed the topic's maximum message size."""
    by_partition: dict[TopicPartition, list[bytes]] = {}
    for partition, letter in letters:
        source = TopicPartition(topic.id, partition % topic.partitions)
        by_partition.setdefault(source, []).append(build_batch([letter], now_ms=now_ms))
    appends = {source: b"".join(batches) for source, batches in by_partition.items()}
    if appends:
        await log.append_jointly(appends, remember)
    else:
        await log.write(remember)


def _remembering(
    subscription: StoredSubscription, topic_partition: TopicPartition, before: int, after: int
) -> CommitOperation:
    """Fails the commit if another redrive sends the same letters back, or if an earlier commit with an unknown outcome
    already did."""

    def remember(tx: CatalogTransaction) -> None:
        if not catalog.set_redriven(tx, subscription.id, topic_partition, before, after):
            raise SubscriptionBusy(
                subscription=subscription.name, reason="its dead letters are being redriven"
            )

    return remember


def _revived(
    letter: Record, subscription: StoredSubscription, addressing: Addressing, now_ms: int
) -> tuple[int, Record]:
    """A letter as it is sent back, and its source partition."""
    source = dict(letter.headers).get(deadletters.SOURCE_PARTITION) or b""
    added = deadletters.SHARE_HEADERS if subscription.share_group else frozenset[str]()
    kept = [header for header in letter.headers if is_public(header[0]) and header[0] not in added]
    headers = (*kept, addressing.header(subscription.name, letter))
    return _partition(source), letter._replace(headers=headers, offset=-1, timestamp=now_ms)


def _partition(text: bytes) -> int:
    """Any client may write to a dead-letter topic: a value that is not a number means partition 0."""
    return int(text) if text.isdigit() and len(text) <= PARTITION_DIGITS_MAX else 0
