"""The service of the MiniKafka project: one partition, message numbers from 1, and a poll that returns all it can.

MiniKafka's own server returned all messages in one poll response, and its clients accept at most 4 MiB. This
service limits the response, and the next poll continues from there. A position outside the retained range is
not an error: below it, reading starts at the oldest message; above it, the response is empty.
"""

from millpond.frontends.rpc.context import Context
from millpond.frontends.rpc.convert import size_of
from millpond.frontends.rpc.guarding import guarded
from millpond.frontends.rpc.memory import ResponseMemory
from millpond.frontends.rpc.rights import READ_TOPIC
from millpond.model.acls import AclOperation, ResourceType
from millpond.model.errors import InvalidRequest
from millpond.model.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from millpond.records import Record
from millpond.security.requirements import Needs
from millpond.security.throttling import response_bytes_max
from millpond.service import MessageWriter, Poller, PollRequest, PollResult
from millpond.stubs import minikafka_pb2 as pb

PARTITION = 0
ANSWER_BYTES_MAX = 3 * 1024 * 1024
"""By default gRPC clients refuse messages larger than 4 MiB."""
ANSWER_MESSAGES_MAX = 10_000
NUMBER_MAX = 2**32 - 1


class MiniKafkaService:
    def __init__(self, messages: MessageWriter, poller: Poller, response_memory: ResponseMemory) -> None:
        self._messages = messages
        self._poller = poller
        self._response_memory = response_memory

    @guarded(Needs(AclOperation.WRITE, ResourceType.TOPIC, of="topic.topic"), counts=PRODUCER_BYTE_RATE)
    async def produce(self, request: pb.ProduceRequest, context: Context) -> pb.MsgNumber:
        if not request.HasField("topic") or not request.HasField("payload"):
            raise InvalidRequest(reason="a topic and a payload must be given")
        record = Record(value=request.payload.payload)
        [stored] = await self._messages.produce(
            request.topic.topic, [record], PARTITION, access=context.access
        )
        return _number(stored.offset + 1)

    @guarded(READ_TOPIC, counts=CONSUMER_BYTE_RATE)
    async def poll(self, request: pb.PollRequest, context: Context) -> pb.PollResponse:
        if not request.HasField("read_from"):
            raise InvalidRequest(reason="a number to read from must be given")
        read_from = request.read_from.msg_number
        room = response_bytes_max(context.access, self._response_memory.room(ANSWER_BYTES_MAX))
        wanted = PollRequest(
            request.topic,
            {PARTITION: max(read_from - 1, 0)},
            messages_max=ANSWER_MESSAGES_MAX,
            bytes_max=room,
        )
        with self._response_memory.holding(room):
            polled = await self._poller.poll(wanted)
        payloads = [pb.Payload(payload=record.value or b"") for _, record in polled.records]
        following = (
            max(read_from, polled.read_positions[0].next_offset + 1) if _moved(polled, wanted) else read_from
        )
        self._response_memory.hold_until_sent(size_of(polled), context)
        return pb.PollResponse(payloads=payloads, new_read_from=_number(following))


def _moved(polled: PollResult, wanted: PollRequest) -> bool:
    """Whether the poll advanced, even if only over records that readers may not see, such as aborted transactions."""
    return polled.read_positions[0].next_offset > wanted.positions[PARTITION]


def _number(number: int) -> pb.MsgNumber:
    if number > NUMBER_MAX:
        raise InvalidRequest(
            reason=f"message {number} is larger than this schema can express; use millpond.v1"
        )
    return pb.MsgNumber(msg_number=number)
