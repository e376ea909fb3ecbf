"""InitProducerId (22), v0-5: returns an id for an idempotent producer, or the next epoch of a transactional one.

Without a transactional id, the response is a new id with epoch 0. With one, the previous producer with that id is
fenced and its open transaction is aborted. From v3 a producer may send its current id and epoch, to continue after
an error unless another instance has taken over (KIP-360). A fenced producer gets error 90 from v4, 47 before. Without
a transactional id, the client must be allowed to write to some topic, or have IDEMPOTENT_WRITE on the cluster.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import IDEMPOTENT_WRITE, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID
from millpond.frontends.kafka.transaction_errors import transaction_code_of
from millpond.log import ProducerEpoch
from millpond.model.errors import InvalidRequest, MillpondError, Unavailable
from millpond.protocol import ErrorCode
from millpond.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

FENCED_SINCE = 4
NONE = -1


@handles(InitProducerIdRequest, rights=(WRITE_TRANSACTIONAL_ID, IDEMPOTENT_WRITE, WRITE_TOPIC))
async def init_producer_id(call: KafkaCall, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        producer = await _begin(call, request)
    except MillpondError as error:
        code = _code(call, request, error)
        return InitProducerIdResponse(error_code=code, producer_epoch=NONE)
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


async def _begin(call: KafkaCall, request: InitProducerIdRequest) -> ProducerEpoch:
    _require(call, request.transactional_id)
    known = ProducerEpoch(request.producer_id, request.producer_epoch)
    if (known.producer_id == NONE) != (known.epoch == NONE):
        raise InvalidRequest(reason=f"producer {known.producer_id} with epoch {known.epoch}")
    if request.transactional_id is None:
        return ProducerEpoch(await call.transactions.new_producer_id(), 0)
    producer = await call.transactions.begin_producer(
        request.transactional_id,
        request.transaction_timeout_ms,
        known if known.producer_id != NONE else None,
    )
    return producer.identity


def _require(call: KafkaCall, transactional_id: str | None) -> None:
    """An idempotent producer asks for its id before it names a topic: it must be able to write to some topic."""
    if transactional_id is not None:
        call.require(WRITE_TRANSACTIONAL_ID, transactional_id)
    elif not call.allows_somewhere(WRITE_TOPIC):
        call.require(IDEMPOTENT_WRITE)


def _code(call: KafkaCall, request: InitProducerIdRequest, error: MillpondError) -> ErrorCode:
    """A producer without a transactional id has no coordinator to look up: it gets an error that makes it retry."""
    if request.transactional_id is None and isinstance(error, Unavailable):
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return transaction_code_of(error, call.version, fenced_since=FENCED_SINCE)
