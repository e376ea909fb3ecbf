"""Decodes record batches to messages. A batch that cannot be decoded does not affect the batches before it.

Pure: the caller decides when the error is raised.
"""

from typing import Final

from millpond.client.message import Message, message_of
from millpond.model.errors import InvalidInput, UnreadableBatch
from millpond.records import iter_records, walk

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024


def decode(
    data: bytes, topic: str, partition: int, read_from: int, following: int
) -> tuple[list[Message], UnreadableBatch | None]:
    """The messages from number `read_from` on, up to a batch that cannot be read. `following` is the number
    at which the broker continues: it is used if a damaged header does not show where its batch ends."""
    messages: list[Message] = []
    offset, next_offset = read_from - 1, following - 1
    try:
        for position, header in walk(data):
            offset, next_offset = header.base_offset, header.next_offset
            batch = memoryview(data)[position : position + header.size]
            messages += _messages(batch, topic, partition, read_from)
            offset, next_offset = header.next_offset, following - 1
    except InvalidInput as error:
        return messages, _unreadable(partition, offset, next_offset, error)
    return messages, None


def _messages(batch: memoryview, topic: str, partition: int, read_from: int) -> list[Message]:
    """All messages of a batch, or none."""
    records = iter_records(batch, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    return [message_of(record, topic, partition) for record in records if record.offset >= read_from - 1]


def _unreadable(partition: int, offset: int, next_offset: int, error: InvalidInput) -> UnreadableBatch:
    reason = str(error.facts.get("reason", error)).rstrip(".")
    return UnreadableBatch(
        partition=partition, offset=offset, next_offset=max(next_offset, offset + 1), reason=reason
    )
