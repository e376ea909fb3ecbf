"""Every error of the engine has a number of Kafka's, and only bugs are told as unknown errors."""

from tests.each import for_each

from millpond.frontends.kafka.errors import CODES, KafkaError, code_and_message, code_of
from millpond.frontends.kafka.share_delivery import partition_code
from millpond.model import errors
from millpond.model.errors import CannotStart, Defect, MillpondError, UnknownTopic
from millpond.protocol import ErrorCode

BRANCHES = (errors.Unavailable, errors.Damaged, CannotStart)
"""Families that share one number unless a leaf has its own."""
LEAVES = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, MillpondError) and not kind.__subclasses__()
]


def mapped_by(kind):
    return next((each for each in kind.__mro__ if each in CODES), None)


@for_each("kind", LEAVES)
def test_every_leaf_has_a_number_of_its_own_or_its_familys(kind):
    assert mapped_by(kind) in (kind, *BRANCHES)


@for_each("kind", LEAVES)
def test_only_bugs_are_unknown_errors(kind):
    is_unknown = code_of(kind()) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert is_unknown == issubclass(kind, (Defect, CannotStart))


RETRIED = {
    *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT),
    *(ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_COORDINATOR),
    *(ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.CONCURRENT_TRANSACTIONS),
    *(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
"""What Kafka's clients send again."""


@for_each("kind", [kind for kind in LEAVES if kind.retriable])
def test_what_may_succeed_later_is_told_so(kind):
    assert code_of(kind()) in RETRIED


UNDERSTOOD = {-1, 3, 6, 9, 29, 56, 74, 75, 78, 100, 103}
"""Errors of partitions in ShareFetch that Kafka's Java client handles. Any other is an exception of `poll`."""


@for_each("kind", LEAVES)
def test_members_of_share_groups_understand_errors_of_partitions(kind):
    code = partition_code(code_of(kind()))
    assert code in UNDERSTOOD
    assert not kind.retriable or code != ErrorCode.UNKNOWN_SERVER_ERROR


def test_no_number_is_given_to_the_root():
    assert MillpondError not in CODES


def test_a_refusal_of_this_interface_has_its_own_number():
    refused = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "too few")
    assert code_and_message(refused) == (ErrorCode.INVALID_REPLICATION_FACTOR, "too few")
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic 'a'.")
    assert code_and_message(UnknownTopic(topic="a")) == unknown
