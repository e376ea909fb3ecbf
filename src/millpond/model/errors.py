"""Every error the engine raises on purpose, in one tree.

    MillpondError
    ├── InvalidInput                 the request is wrong; sending it again will not help
    │   ├── InvalidTopicName  InvalidConfig  InvalidPartitionCount  InvalidTimestamp
    │   ├── CorruptBatch  RecordTooLarge  UnsupportedCompression  InvalidRecord
    │   └── InvalidRequest  MalformedMessage
    ├── NotFound
    │   └── UnknownTopic  UnknownPartition  ObjectMissing
    ├── Conflict                     the request is well-formed but the state says no
    │   ├── TopicExists  ObjectExists  ExtentsChanged
    │   ├── OutOfOrderSequence  ProducerFenced  InvalidTransactionState
    │   └── OffsetOutOfRange
    ├── Fenced                       this writer may no longer write here
    │   └── NotOwner  WriterDead
    ├── Unavailable                  try again later; nothing was acknowledged
    │   ├── StoreUnavailable  StoreFull  CatalogUnavailable  OutcomeUnknown  CatalogFailed
    │   └── FlushFailed  Overloaded  Stopping
    ├── Damaged                      stored bytes or rows are not what was written
    │   └── CorruptObject  CorruptCatalog
    ├── Defect                       a bug of ours
    └── CannotStart
        └── DataDirectoryLocked  DataDirectoryUnusable  NewerSchema  UnsafeDatabase  InvalidSettings

A class's docstring is its message; `{names}` in it are filled from the keyword arguments, which stay available
as `facts`. `retriable` says whether the same request may succeed later.
"""

from typing import Any, ClassVar, Self


class MillpondError(Exception):
    """Something went wrong."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str | None = None, /, **facts: Any) -> None:
        self.facts = facts
        super().__init__(message or self._default_message())

    def copy(self) -> Self:
        """A fresh instance. One that is raised again and again would keep every traceback it ever had."""
        return type(self)(str(self), **self.facts)

    def _default_message(self) -> str:
        template = " ".join((type(self).__doc__ or "").split())
        return template.format_map(_Facts(self.facts))


class _Facts(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return f"<{key}>"


class InvalidInput(MillpondError):
    """The request is not valid."""


class InvalidTopicName(InvalidInput):
    """Topic name {name!r} is not legal: use 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..'."""


class InvalidConfig(InvalidInput):
    """Topic config {key!r} cannot be {value!r}: {reason}."""


class InvalidPartitionCount(InvalidInput):
    """A topic cannot have {partitions} partitions: {reason}."""


class InvalidTimestamp(InvalidInput):
    """Batch timestamp {timestamp} lies {ahead_ms} ms ahead of the broker; {limit_ms} ms are allowed."""


class CorruptBatch(InvalidInput):
    """The record batch is corrupt: {reason}."""


class RecordTooLarge(InvalidInput):
    """A batch of {size} bytes is larger than the limit of {limit}."""


class UnsupportedCompression(InvalidInput):
    """Compression type {codec} is not known."""


class InvalidRecord(InvalidInput):
    """The record is not acceptable: {reason}."""


class InvalidRequest(InvalidInput):
    """The request is not valid: {reason}."""


class MalformedMessage(InvalidInput):
    """The bytes are not the Kafka message they should be: {reason}."""


class NotFound(MillpondError):
    """It does not exist."""


class UnknownTopic(NotFound):
    """Topic {topic!r} does not exist."""


class UnknownPartition(NotFound):
    """Topic {topic!r} has no partition {partition}."""


class ObjectMissing(NotFound):
    """Object {key!r} is not in the store."""


class Conflict(MillpondError):
    """The current state does not allow it."""


class TopicExists(Conflict):
    """Topic {topic!r} already exists."""


class ObjectExists(Conflict):
    """Object {key!r} already exists."""


class ExtentsChanged(Conflict):
    """The extents to be replaced have changed meanwhile."""

    retriable = True


class OutOfOrderSequence(Conflict):
    """Producer {producer_id} sent sequence {sequence} where {expected} was expected."""


class ProducerFenced(Conflict):
    """Producer {producer_id} with epoch {epoch} has been replaced by epoch {current}."""


class InvalidTransactionState(Conflict):
    """The transaction of producer {producer_id} is not open for this partition."""


class OffsetOutOfRange(Conflict):
    """Offset {offset} is outside the retained range {log_start} to {end_offset}."""


class Fenced(MillpondError):
    """This writer has been replaced."""


class NotOwner(Fenced):
    """This broker no longer owns the partition."""

    retriable = True


class WriterDead(Fenced):
    """Writer session {session} has been declared dead and can no longer commit."""


class Unavailable(MillpondError):
    """Not available right now."""

    retriable = True


class StoreUnavailable(Unavailable):
    """The object store did not take the request: {reason}."""


class StoreFull(StoreUnavailable):
    """The object store has no room left: {reason}."""


class CatalogUnavailable(Unavailable):
    """The catalog did not take the request: {reason}."""


class OutcomeUnknown(CatalogUnavailable):
    """The catalog's connection was lost during COMMIT; whether it took effect is not known yet."""


class CatalogFailed(CatalogUnavailable):
    """The catalog's disk failed ({reason}). This process writes no more: what the disk holds is not known."""


class FlushFailed(Unavailable):
    """An earlier flush of this partition failed, so this one was not tried."""


class Overloaded(Unavailable):
    """{waiting} bytes wait to be written; the limit is {limit}."""


class Stopping(Unavailable):
    """The broker is stopping."""


class Damaged(MillpondError):
    """Stored data is damaged."""


class CorruptObject(Damaged):
    """Object {key!r} is damaged at byte {position}: {reason}."""


class CorruptCatalog(Damaged):
    """The catalog is damaged: {reason}."""


class Defect(MillpondError):
    """Something went wrong inside Millpond: {reason}. This is a bug."""


class CannotStart(MillpondError):
    """Cannot start."""


class DataDirectoryLocked(CannotStart):
    """Another broker is running on {path}. Stop it first, or give this one another --data-dir."""


class DataDirectoryUnusable(CannotStart):
    """The data directory {path} cannot be used: {reason}."""


class NewerSchema(CannotStart):
    """The catalog needs code version {needed} or newer, and this is {code}. Upgrade millpond."""


class UnsafeDatabase(CannotStart):
    """PostgreSQL setting {setting} is {value!r}; acknowledged messages could be lost. Turn it on."""


class InvalidSettings(CannotStart):
    """Setting {name} cannot be {value!r}: {reason}."""
