"""Every error the engine raises on purpose, in one tree.

    MillpondError
    ├── InvalidInput                 the request is wrong; sending it again will not help
    │   ├── InvalidTopicName  InvalidConfig  InvalidPartitionCount  InvalidTimestamp  InvalidTransactionTimeout
    │   ├── CorruptBatch  RecordTooLarge  UnsupportedCompression  InvalidRecord
    │   ├── InvalidGroupId  InvalidSessionTimeout  OffsetMetadataTooLarge  InvalidRegularExpression
    │   ├── InvalidPayload  PayloadTooLarge
    │   ├── InvalidRequest  MalformedMessage  InvalidSubscription
    │   ├── InvalidAcl  InvalidCredential
    │   └── InvalidArgument           of a call of the client library; also a ValueError
    ├── AuthenticationFailed         the client did not prove who it is
    │   └── NotAuthenticated          it did not try
    ├── NotAuthorized                the client is known and may not do this, whether or not the resource exists
    │   └── TopicNotAuthorized  GroupNotAuthorized  ClusterNotAuthorized  TransactionalIdNotAuthorized
    ├── NotFound
    │   └── UnknownTopic  UnknownPartition  ObjectMissing  UnknownGroup  UnknownPayload
    │       UnknownSubscription  UnknownConsumer  UnknownUser  UnknownToken
    ├── Conflict                     the request is well-formed but the state says no
    │   ├── TopicExists  ObjectExists  ExtentsChanged  PayloadExists  PayloadsNotTaken
    │   ├── OutOfOrderSequence  ProducerFenced  InvalidProducerIdMapping  InvalidTransactionState
    │   ├── OffsetOutOfRange  TopicReplaced  SubscriptionExists  SubscriptionBusy  SubscriptionReplaced
    │   ├── SubscriptionDiffers  StaleDelivery  StorageQuotaExceeded
    │   └── GroupError               a consumer group is not as the request supposes
    │       ├── MemberIdRequired  UnknownMember  FencedInstance  IllegalGeneration  RebalanceInProgress
    │       ├── InconsistentProtocol  GroupFull  GroupNotEmpty  GroupSubscribed  UnstableOffsets
    │       ├── FencedMemberEpoch  StaleMemberEpoch  UnreleasedInstance  UnsupportedAssignor
    │       └── GroupInUse  NotCoordinator
    ├── Fenced                       this writer may no longer write here
    │   └── NotOwner  WriterDead  StaleEpoch  EpochAhead
    ├── Unavailable                  try again later; nothing was acknowledged
    │   ├── StoreUnavailable  StoreFull  CatalogUnavailable  CatalogFull  OutcomeUnknown  CatalogFailed
    │   ├── CatalogWentBack
    │   ├── FlushFailed  Overloaded  QuotaExceeded  Stopping  IdentityProviderUnavailable
    │   └── Unreachable  TimedOut     raised by a client that gets no response
    ├── Damaged                      stored bytes or rows are not what was written
    │   ├── CorruptObject  CorruptCatalog  UnreadableBatch  CorruptPayload
    │   └── PartitionHalted
    ├── Defect                       a bug of ours
    └── CannotStart
        ├── DataDirectoryLocked  DataDirectoryUnusable  NewerSchema  UnsafeDatabase  NotInstalled
        └── InvalidSettings
            └── PortUnavailable

A class's docstring is its message; `{names}` in it are filled from the keyword arguments, which stay available
as `facts`. `retriable` says whether the same request may succeed later.
"""

import re
from typing import Any, ClassVar, Final, Self

FACT_CHARS_MAX = 500
"""Of a text from outside, such as a topic's name, no more goes into a message: responses and logs are bounded, too."""
_DOUBLE_PERIOD: Final = re.compile(r"(?<!\.)([.?!])\.(?=\s|$)")
"""A fact that ends its sentence, and the full stop of the sentence around it. An ellipsis is left alone."""


def without_double_periods(text: str) -> str:
    """The text without a full stop behind a full stop, a question mark or an exclamation mark."""
    return _DOUBLE_PERIOD.sub(r"\1", text)


class MillpondError(Exception):
    """Something went wrong."""

    retriable: ClassVar[bool] = False

    def __init__(self, message: str | None = None, /, **facts: Any) -> None:
        self.facts = facts
        super().__init__(message or self._default_message())

    def copy(self) -> Self:
        """Returns a fresh instance. An instance that is raised repeatedly would keep all its tracebacks."""
        return type(self)(str(self), **self.facts)

    def _default_message(self) -> str:
        template = " ".join((type(self).__doc__ or "").split())
        facts = _Facts({name: _short(fact) for name, fact in self.facts.items()})
        return without_double_periods(template.format_map(facts))


class _Facts(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def _short(fact: Any) -> Any:
    if isinstance(fact, str) and len(fact) > FACT_CHARS_MAX:
        return fact[:FACT_CHARS_MAX] + "…"
    return fact


class InvalidInput(MillpondError):
    """The request is not valid."""


class InvalidTopicName(InvalidInput):
    """Topic name {name!r} is not valid: use 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', and not '.' or '..'."""


class InvalidConfig(InvalidInput):
    """Config {key!r} cannot be {value!r}: {reason}."""


class InvalidPartitionCount(InvalidInput):
    """A topic cannot have {partitions} partitions: {reason}."""


class InvalidTimestamp(InvalidInput):
    """Batch timestamp {timestamp} lies {apart_ms} ms {direction} the broker's time; {limit_ms} ms are allowed."""


class InvalidTransactionTimeout(InvalidInput):
    """A transaction timeout of {timeout_ms} ms is outside the range 1 to {max_ms}."""


class CorruptBatch(InvalidInput):
    """The record batch is corrupt: {reason}."""


class RecordTooLarge(InvalidInput):
    """A batch of {size} bytes is larger than the limit of {limit}."""


class UnsupportedCompression(InvalidInput):
    """Compression type {codec} is not supported."""


class InvalidRecord(InvalidInput):
    """The record is not valid: {reason}."""


class InvalidGroupId(InvalidInput):
    """Group id {group!r} is not valid."""


class InvalidSessionTimeout(InvalidInput):
    """A session timeout of {timeout_ms} ms is outside the range {min_ms} to {max_ms}."""


class OffsetMetadataTooLarge(InvalidInput):
    """Offset metadata of {size} bytes is larger than the limit of {limit}."""


class InvalidRegularExpression(InvalidInput):
    """Regular expression {regex!r} is not valid: {reason}."""


class InvalidPayload(InvalidInput):
    """Payload {payload!r} cannot be used: {reason}."""


class PayloadTooLarge(InvalidInput):
    """A payload of {size} bytes is larger than the limit of {limit}."""


class InvalidRequest(InvalidInput):
    """The request is not valid: {reason}."""


class InvalidArgument(InvalidRequest, ValueError):
    """{argument}={value}: expected {expected}."""


class MalformedMessage(InvalidInput):
    """The bytes are not a valid Kafka message: {reason}."""


class InvalidSubscription(InvalidInput):
    """The subscription is not valid: {reason}."""


class InvalidAcl(InvalidInput):
    """The ACL is not valid: {reason}."""


class InvalidCredential(InvalidInput):
    """The credential is not valid: {reason}."""


class AuthenticationFailed(MillpondError):
    """Authentication failed. Check the user name and password, the token, or the certificate."""


class NotAuthenticated(AuthenticationFailed):
    """Authentication is required: send a user name and password, or a token."""


class NotAuthorized(MillpondError):
    """Access denied."""


class TopicNotAuthorized(NotAuthorized):
    """{principal} may not {operation} topic {topic!r}."""


class GroupNotAuthorized(NotAuthorized):
    """{principal} may not {operation} group {group!r}."""


class ClusterNotAuthorized(NotAuthorized):
    """{principal} may not {operation} the cluster."""


class TransactionalIdNotAuthorized(NotAuthorized):
    """{principal} may not {operation} transactional id {transactional_id!r}."""


class NotFound(MillpondError):
    """It does not exist."""


class UnknownTopic(NotFound):
    """There is no topic {topic!r}."""


class UnknownPartition(NotFound):
    """Topic {topic!r} has no partition {partition}."""


class ObjectMissing(NotFound):
    """Object {key!r} is not in the store."""


class UnknownGroup(NotFound):
    """Group {group!r} does not exist."""


class UnknownPayload(NotFound):
    """Topic {topic!r} has no payload {payload}."""


class UnknownSubscription(NotFound):
    """Topic {topic!r} has no subscription {subscription!r}. `millpond subscription create` creates it."""


class UnknownConsumer(NotFound):
    """Subscription {subscription!r} has no consumer {consumer!r}: attach first."""


class UnknownUser(NotFound):
    """There is no user {user!r}."""


class UnknownToken(NotFound):
    """There is no token {token!r}."""


class Conflict(MillpondError):
    """The current state does not allow it."""


class TopicExists(Conflict):
    """Topic {topic!r} already exists."""


class ObjectExists(Conflict):
    """Object {key!r} already exists."""


class PayloadExists(Conflict):
    """Topic {topic!r} already has a payload {payload}."""


class PayloadsNotTaken(Conflict):
    """Topic {topic!r} does not accept payloads by reference: use a topic with the config payload=reference or
    payload=large."""


class ExtentsChanged(Conflict):
    """The extents to be replaced have changed."""

    retriable = True


class OutOfOrderSequence(Conflict):
    """Producer {producer_id} sent sequence {sequence} where {expected} was expected."""


class ProducerFenced(Conflict):
    """Producer {producer_id} with epoch {epoch} has been replaced by epoch {current}."""


class InvalidProducerIdMapping(Conflict):
    """Transactional id {transactional_id!r} does not belong to producer {producer_id}."""


class InvalidTransactionState(Conflict):
    """Producer {producer_id} has no open transaction that allows this."""


class OffsetOutOfRange(Conflict):
    """Offset {offset} is outside the retained range {log_start} to {end_offset}."""


class TopicReplaced(Conflict):
    """Topic {topic!r} was deleted and created again: positions in the old topic are not valid in the new one."""


class SubscriptionExists(Conflict):
    """Topic {topic!r} already has a subscription {subscription!r}."""


class SubscriptionDiffers(Conflict):
    """Subscription {subscription!r} of topic {topic!r} exists with other settings: {difference}. Alter the
    subscription, name its existing settings, or use another subscription."""


class SubscriptionBusy(Conflict):
    """Subscription {subscription!r} is in use: {reason}."""


class StaleDelivery(Conflict):
    """Message {number} of partition {partition} can no longer be acknowledged by this consumer: {reason}."""


class StorageQuotaExceeded(Conflict):
    """Topic {topic!r} accepts no messages: its quota {quota!r} allows {limit} stored bytes, and there are {stored}.
    Delete records, shorten the retention, or raise the quota."""


class SubscriptionReplaced(Conflict):
    """Subscription {subscription!r} was reset, altered or deleted: attach again."""

    retriable = True


class GroupError(Conflict):
    """The state of the group does not allow it."""


class MemberIdRequired(GroupError):
    """Join group {group!r} again, as member {member_id!r}."""


class UnknownMember(GroupError):
    """Group {group!r} has no member {member_id!r}."""


class FencedInstance(GroupError):
    """Another member has replaced instance {instance_id!r} in group {group!r}."""


class IllegalGeneration(GroupError):
    """Group {group!r} is in generation {current}, not {generation}."""


class RebalanceInProgress(GroupError):
    """Group {group!r} is being rebalanced: join it again."""


class InconsistentProtocol(GroupError):
    """The protocols do not match those of group {group!r}."""


class GroupFull(GroupError):
    """Group {group!r} already has {limit} members, which is the limit."""


class GroupNotEmpty(GroupError):
    """Group {group!r} still has members."""


class GroupSubscribed(GroupError):
    """Members of group {group!r} are subscribed to topic {topic!r}."""


class FencedMemberEpoch(GroupError):
    """Member {member_id!r} of group {group!r} is in epoch {current}, not {epoch}: it must join again."""


class StaleMemberEpoch(GroupError):
    """Member {member_id!r} of group {group!r} does not own this partition in epoch {epoch}."""


class UnreleasedInstance(GroupError):
    """Member {holder!r} of group {group!r} still uses instance {instance_id!r}."""


class UnsupportedAssignor(GroupError):
    """Group {group!r} cannot use assignor {assignor!r}; the assignors are {supported}."""


class UnstableOffsets(GroupError):
    """Group {group!r} has offsets for this partition in a transaction that has not ended yet."""

    retriable = True


class GroupInUse(GroupError):
    """Group {group!r} is in use: {reason}."""


class NotCoordinator(GroupError):
    """This broker does not coordinate group {group!r}."""

    retriable = True


class Fenced(MillpondError):
    """This writer has been replaced."""


class NotOwner(Fenced):
    """This broker no longer owns the partition."""

    retriable = True


class WriterDead(Fenced):
    """Writer session {session} has been declared dead and can no longer commit."""

    retriable = True  # elsewhere, or here when the broker has joined again


class StaleEpoch(Fenced):
    """The client's leader epoch {epoch} is older than the broker's {current}."""

    retriable = True


class EpochAhead(Fenced):
    """The client's leader epoch {epoch} is newer than the broker's {current}."""

    retriable = True


class Unavailable(MillpondError):
    """Not available right now."""

    retriable = True


class StoreUnavailable(Unavailable):
    """The object store could not process the request: {reason}."""


class StoreFull(StoreUnavailable):
    """The object store is full: {reason}."""


class CatalogUnavailable(Unavailable):
    """The catalog could not process the request: {reason}."""


class CatalogFull(CatalogUnavailable):
    """The catalog is full: {reason}."""


class OutcomeUnknown(CatalogUnavailable):
    """The connection to the catalog was lost during COMMIT; its outcome is not known yet."""


class CatalogFailed(CatalogUnavailable):
    """The catalog's disk failed ({reason}). This process stops writing, because the content of the disk is not
    known."""


class FlushFailed(Unavailable):
    """An earlier flush of this partition failed, so this one was not attempted."""


class Overloaded(Unavailable):
    """{waiting} bytes wait to be written; the limit is {limit}."""


class QuotaExceeded(Unavailable):
    """The quota {quota} is exceeded. Try again in {retry_after_ms} ms."""


class Stopping(Unavailable):
    """The broker is stopping."""


class IdentityProviderUnavailable(Unavailable):
    """The identity provider could not process the request: {reason}."""


class Unreachable(Unavailable):
    """No broker responds at {address}: {reason}. Is one running there? `millpond serve` starts one."""


class TimedOut(Unavailable):
    """There was no response within {timeout_ms} ms. The messages may or may not be stored."""


class Damaged(MillpondError):
    """Stored data is damaged."""


class CorruptObject(Damaged):
    """Object {key!r} is damaged at byte {position}: {reason}."""


class UnreadableBatch(Damaged):
    """The batch at offset {offset} of partition {partition} cannot be decoded: {reason}. What follows it begins at
    offset {next_offset}."""


class CorruptPayload(Damaged):
    """Payload {payload} of topic {topic!r} does not match its reference: {reason}."""


class CorruptCatalog(Damaged):
    """The catalog is damaged: {reason}."""


class PartitionHalted(Damaged):
    """Partition {partition} is halted: the catalog has lost commits that were acknowledged, as after a failover to
    a replica that was behind. Restart its broker to continue with what is left."""


class CatalogWentBack(CatalogFailed):
    """The catalog is older than what it has confirmed ({reason}): it was restored, or failed over to a replica that was
    behind. This process stops writing."""


class Defect(MillpondError):
    """Internal error: {reason}. This is a bug in Millpond."""


class CannotStart(MillpondError):
    """Cannot start."""


class DataDirectoryLocked(CannotStart):
    """Another broker is running on {path}. Stop it first, or use another --data-dir."""


class DataDirectoryUnusable(CannotStart):
    """The data directory {path} cannot be used: {reason}."""


class NewerSchema(CannotStart):
    """The catalog needs code version {needed} or newer, and this is {code}. Upgrade millpond."""


class UnsafeDatabase(CannotStart):
    """PostgreSQL setting {setting} is {value!r}; acknowledged messages could be lost. Turn it on."""


class NotInstalled(CannotStart):
    """{purpose} needs {what} (not installed): {advice}."""


class InvalidSettings(CannotStart):
    """Setting {name} cannot be {value!r}: {reason}."""


class PortUnavailable(InvalidSettings):
    """Setting {name} cannot be {value!r}: the port is not available ({reason}). Stop what uses it, or choose
    another."""
