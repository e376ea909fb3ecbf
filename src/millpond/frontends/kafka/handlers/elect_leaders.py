"""ElectLeaders (43), v0-2: no election is needed, because each partition has one owner, which is its leader.

A partition that is named gets error 84, or an error that says what is wrong: it does not exist, or no live broker owns
it at the moment. Null, which requests all partitions, gets an empty list, as in Kafka. Kafka's types of election,
preferred (0) and unclean (1), differ only in the error for a partition without an owner.
"""

from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import REFUSALS, KafkaError, KafkaRefusal, code_and_message
from millpond.frontends.kafka.leaders import Leaders
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import ALTER_CLUSTER
from millpond.frontends.kafka.turns import Turns
from millpond.model.errors import NotAuthorized
from millpond.protocol import ErrorCode
from millpond.protocol.messages.reassignments import (
    ElectionPartitionResult,
    ElectionTopicResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)

PREFERRED, UNCLEAN = 0, 1
WITHOUT_OWNER: Final = {
    PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


@handles(ElectLeadersRequest, rights=(ALTER_CLUSTER,))
async def elect_leaders(call: KafkaCall, request: ElectLeadersRequest) -> ElectLeadersResponse:
    refusal = _refusal(call, request.election_type)
    topics = request.topic_partitions or []
    if refusal is None:
        await call.ensure_known(None, (topic.topic for topic in topics))
    leaders, turns = Leaders(call), Turns()
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if refusal is None else code_and_message(refusal)[0],
        replica_election_results=[
            ElectionTopicResult(
                topic=topic.topic,
                partition_result=[
                    _result(
                        number, refusal or _outcome(call, leaders, topic.topic, number, request.election_type)
                    )
                    async for number in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(topics)
        ],
    )


def _refusal(call: KafkaCall, election_type: int) -> KafkaRefusal | None:
    """Why the whole request is refused."""
    try:
        call.require(ALTER_CLUSTER)
    except NotAuthorized as error:
        return error
    if election_type not in WITHOUT_OWNER:
        return KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}.")
    return None


def _outcome(call: KafkaCall, leaders: Leaders, name: str, number: int, election_type: int) -> KafkaRefusal:
    try:
        topic_partition = call.log.topics.partition(name, number)
    except REFUSALS as error:
        return error
    if leaders.of(topic_partition) is None:
        message = "No live broker owns the partition. Another broker takes it over by itself."
        return KafkaError(WITHOUT_OWNER[election_type], message)
    message = "No election is needed: a partition has one owner, which is its leader."
    return KafkaError(ErrorCode.ELECTION_NOT_NEEDED, message)


def _result(number: int, outcome: KafkaRefusal) -> ElectionPartitionResult:
    code, message = code_and_message(outcome)
    return ElectionPartitionResult(partition_id=number, error_code=code, error_message=message)
