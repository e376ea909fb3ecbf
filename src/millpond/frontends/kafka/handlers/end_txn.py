"""EndTxn (26), v0-5: commits or aborts a transaction. Markers and offsets are durable and visible to readers
before the response is sent.

From v5 the producer gets a new epoch with each transaction, so that a late request of one transaction cannot
be taken for part of the next (KIP-890), and it may abort a transaction that was never opened. A fenced
producer gets error 90 from v2, 47 before.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import WRITE_TRANSACTIONAL_ID
from millpond.frontends.kafka.transaction_errors import transaction_code_of
from millpond.log import TransactionalProducer
from millpond.model.errors import MillpondError
from millpond.protocol.messages.transactions import EndTxnRequest, EndTxnResponse

FENCED_SINCE = 2
NEW_EPOCH_SINCE = 5


@handles(EndTxnRequest, rights=(WRITE_TRANSACTIONAL_ID,))
async def end_txn(call: KafkaCall, request: EndTxnRequest) -> EndTxnResponse:
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        call.require(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        fresh = await call.transactions.end(
            producer, commit=request.committed, bump_epoch=call.version >= NEW_EPOCH_SINCE
        )
    except MillpondError as error:
        code = transaction_code_of(error, call.version, fenced_since=FENCED_SINCE)
        return EndTxnResponse(error_code=code)
    if call.version < NEW_EPOCH_SINCE:
        return EndTxnResponse()
    return EndTxnResponse(producer_id=fresh.producer_id, producer_epoch=fresh.epoch)
