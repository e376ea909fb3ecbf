"""Maps Millpond's errors to Kafka's error codes; no other module of the Kafka interface does.

`UNKNOWN_SERVER_ERROR` makes most clients give up, so temporary errors get a code that clients retry.
"""

from collections.abc import Mapping
from typing import Final

from millpond.model import errors
from millpond.model.errors import MillpondError
from millpond.protocol import ErrorCode

CODES: Final[Mapping[type[MillpondError], ErrorCode]] = {
    errors.InvalidInput: ErrorCode.INVALID_REQUEST,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.InvalidConfig: ErrorCode.INVALID_CONFIG,
    errors.InvalidPartitionCount: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.InvalidArgument: ErrorCode.INVALID_REQUEST,
    errors.MalformedMessage: ErrorCode.INVALID_REQUEST,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.InvalidSubscription: ErrorCode.INVALID_REQUEST,
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.RecordTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.InvalidGroupId: ErrorCode.INVALID_GROUP_ID,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.InvalidPayload: ErrorCode.INVALID_RECORD,
    errors.PayloadTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidAcl: ErrorCode.INVALID_REQUEST,
    errors.InvalidCredential: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    errors.AuthenticationFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.NotAuthenticated: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.NotAuthorized: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.TopicNotAuthorized: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.GroupNotAuthorized: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    errors.ClusterNotAuthorized: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.TransactionalIdNotAuthorized: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.UnknownUser: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UnknownToken: ErrorCode.RESOURCE_NOT_FOUND,
    errors.UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.ObjectMissing: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.UnknownGroup: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.UnknownPayload: ErrorCode.INVALID_REQUEST,
    errors.UnknownSubscription: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.UnknownConsumer: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.SubscriptionExists: ErrorCode.INVALID_REQUEST,
    errors.SubscriptionDiffers: ErrorCode.INVALID_REQUEST,
    errors.SubscriptionBusy: ErrorCode.INVALID_REQUEST,
    errors.SubscriptionReplaced: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.StaleDelivery: ErrorCode.INVALID_REQUEST,
    errors.StorageQuotaExceeded: ErrorCode.POLICY_VIOLATION,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.TopicReplaced: ErrorCode.INCONSISTENT_TOPIC_ID,
    errors.ObjectExists: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.PayloadExists: ErrorCode.INVALID_REQUEST,
    errors.PayloadsNotTaken: ErrorCode.INVALID_REQUEST,
    errors.ExtentsChanged: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.InvalidProducerIdMapping: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupInUse: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupSubscribed: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.InvalidRegularExpression: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.UnstableOffsets: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.NotOwner: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.StaleEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.EpochAhead: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.WriterDead: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.Unavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.FlushFailed: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.Overloaded: ErrorCode.REQUEST_TIMED_OUT,
    errors.QuotaExceeded: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.Stopping: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.Damaged: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.Defect: ErrorCode.UNKNOWN_SERVER_ERROR,
    errors.CannotStart: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def code_of(error: MillpondError) -> ErrorCode:
    """The code of the error's class, or of its nearest ancestor that has one."""
    for kind in type(error).__mro__:
        code = CODES.get(kind)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


class KafkaError(Exception):
    """An error that exists only in Kafka's protocol, such as a bad replication factor. Never leaves the Kafka
    interface."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)


KafkaRefusal = MillpondError | KafkaError
REFUSALS: Final = (MillpondError, KafkaError)
"""For `except`: all errors that one row of a response can report."""


def code_and_message(error: KafkaRefusal) -> tuple[ErrorCode, str]:
    code = error.code if isinstance(error, KafkaError) else code_of(error)
    return code, str(error)
