"""AddOffsetsToTxn (25), v0-4: adds a group to a transaction before offsets are committed in it. Opens the
transaction if it is not open.

A fenced producer gets error 90 from v2, 47 before.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import READ_GROUP, WRITE_TRANSACTIONAL_ID
from millpond.frontends.kafka.transaction_errors import transaction_code_of
from millpond.log import TransactionalProducer
from millpond.model.errors import MillpondError
from millpond.protocol.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_SINCE = 2


@handles(AddOffsetsToTxnRequest, rights=(WRITE_TRANSACTIONAL_ID, READ_GROUP))
async def add_offsets_to_txn(call: KafkaCall, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        call.require(WRITE_TRANSACTIONAL_ID, request.transactional_id)
        call.require(READ_GROUP, request.group_id)
        await call.transactions.add_group(producer, request.group_id)
    except MillpondError as error:
        code = transaction_code_of(error, call.version, fenced_since=FENCED_SINCE)
        return AddOffsetsToTxnResponse(error_code=code)
    return AddOffsetsToTxnResponse()
