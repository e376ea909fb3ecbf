"""DescribeTransactions (65), v0: returns state, holder and partitions of transactional ids.

The coordinator of an id responds for it. An id that does not exist gets error 105. The start time is that of the open
transaction, or -1. States between open and complete do not exist: one commit writes all markers. Partitions of topics
that the client may not describe are left out.
"""

from collections.abc import Mapping

from millpond.catalog import transaction_status
from millpond.catalog.transaction_status import FoundTransaction
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from millpond.frontends.kafka.turns import Turns
from millpond.model.errors import MillpondError, NotAuthorized
from millpond.model.ids import TopicId
from millpond.protocol import ErrorCode
from millpond.protocol.messages.transaction_admin import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionDescription,
    TransactionDescriptionTopic,
)

NONE = -1
NO_TIMEOUT = 0

FoundTransactions = Mapping[str, FoundTransaction]


@handles(DescribeTransactionsRequest, rights=(DESCRIBE_TRANSACTIONAL_ID, DESCRIBE_TOPIC))
async def describe_transactions(
    call: KafkaCall, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    turns = Turns()
    refusals = {name: _refusal(call, name) async for name in turns.over(request.transactional_ids)}
    found = await _find(call, [name for name, refusal in refusals.items() if refusal is None])
    if not isinstance(found, ErrorCode):
        await call.ensure_known(
            DESCRIBE_TOPIC, ids=(each.topic_id for one in found.values() for each in one.partitions)
        )
    return DescribeTransactionsResponse(
        transaction_states=[
            await _state(call, name, refusals[name], found, turns)
            async for name in turns.over(request.transactional_ids)
        ]
    )


def _refusal(call: KafkaCall, transactional_id: str) -> ErrorCode | None:
    try:
        call.require(DESCRIBE_TRANSACTIONAL_ID, transactional_id)
    except NotAuthorized as error:
        return coordinator_code_of(error)
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    return None if call.transactions.coordinates(transactional_id) else ErrorCode.NOT_COORDINATOR


async def _find(call: KafkaCall, transactional_ids: list[str]) -> FoundTransactions | ErrorCode:
    try:
        return await call.log.read(lambda tx: transaction_status.describe_transactions(tx, transactional_ids))
    except MillpondError as error:
        return coordinator_code_of(error)


async def _state(
    call: KafkaCall, name: str, refusal: ErrorCode | None, found: FoundTransactions | ErrorCode, turns: Turns
) -> TransactionDescription:
    if refusal is not None:
        return _refused(name, refusal)
    if isinstance(found, ErrorCode):
        return _refused(name, found)
    if name not in found:
        return _refused(name, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    status = found[name].status
    return TransactionDescription(
        transactional_id=name,
        transaction_state=status.state,
        transaction_timeout_ms=status.timeout_ms,
        transaction_start_time_ms=NONE if status.started_at is None else status.started_at,
        producer_id=status.producer_id,
        producer_epoch=status.epoch,
        topics=await _topics(call, found[name], turns),
    )


async def _topics(
    call: KafkaCall, found: FoundTransaction, turns: Turns
) -> list[TransactionDescriptionTopic]:
    by_topic: dict[TopicId, list[int]] = {}
    async for topic_id, number in turns.over(found.partitions):
        by_topic.setdefault(topic_id, []).append(number)
    topics = call.log.topics
    named = {
        topics.name_of(topic_id): numbers
        for topic_id, numbers in by_topic.items()
        if topics.knows_id(topic_id)
    }
    return [
        TransactionDescriptionTopic(topic=name, partitions=numbers)
        for name, numbers in named.items()
        if call.allows(DESCRIBE_TOPIC, name)
    ]


def _refused(name: str, code: ErrorCode) -> TransactionDescription:
    return TransactionDescription(
        error_code=code,
        transactional_id=name,
        transaction_state="",
        transaction_timeout_ms=NO_TIMEOUT,
        transaction_start_time_ms=NONE,
        producer_id=NONE,
        producer_epoch=NONE,
        topics=[],
    )
