"""ListTransactions (66), v0-2: lists the transactional ids that this broker coordinates, with their states.

Filters by state and producer id; by duration (v1), which leaves transactions that have been open for longer; and by a
regular expression of RE2 (v2), which the whole id must match. A state that Kafka does not know is returned as such; the
states of Kafka that do not exist here select nothing. Ids that the client may not describe are left out.
"""

from collections.abc import Callable
from typing import Final

from millpond.catalog import transaction_status
from millpond.catalog.transaction_status import TransactionStatus
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.coordinator_errors import coordinator_code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_TRANSACTIONAL_ID
from millpond.frontends.kafka.turns import Turns
from millpond.groups.consumer.topic_regex import TopicRegex
from millpond.model.errors import MillpondError
from millpond.protocol.messages.transaction_admin import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATES: Final = frozenset(
    (
        *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"),
        "PrepareEpochFence",
    )
)
"""Kafka's names, with upper and lower case as here."""


@handles(ListTransactionsRequest, rights=(DESCRIBE_TRANSACTIONAL_ID,))
async def list_transactions(call: KafkaCall, request: ListTransactionsRequest) -> ListTransactionsResponse:
    selects = _filter(request, call.services.clock.now_ms())
    try:
        listed = await call.log.read(
            lambda tx: [
                each
                for each in transaction_status.list_transactions(tx)
                if selects(each) and call.transactions.coordinates(each.transactional_id)
            ]
        )
        if pattern := request.transactional_id_pattern:
            listed = await call.log.in_pool(lambda: _matching(pattern, listed))
    except MillpondError as error:
        return ListTransactionsResponse(error_code=coordinator_code_of(error), transaction_states=[])
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATES],
        transaction_states=[
            ListedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state,
            )
            async for each in Turns().over(listed)
            if call.allows(DESCRIBE_TRANSACTIONAL_ID, each.transactional_id)
        ],
    )


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionStatus], bool]:
    states, producer_ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    started_before = now_ms - request.duration_filter if request.duration_filter >= 0 else None

    def selects(each: TransactionStatus) -> bool:
        return (
            (not states or each.state in states)
            and (not producer_ids or each.producer_id in producer_ids)
            and (started_before is None or (each.started_at is not None and each.started_at < started_before))
        )

    return selects


def _matching(pattern: str, listed: list[TransactionStatus]) -> list[TransactionStatus]:
    found = TopicRegex(pattern).matching(each.transactional_id for each in listed)
    return [each for each in listed if each.transactional_id in found]
