"""AlterPartitionReassignments (45), v0-1: a partition stays with its owner, which is its only replica.

To assign a partition to the broker that owns it succeeds and changes nothing. Other replicas get error 39, whose text
says how partitions move here. To cancel (null replicas) gets error 85: no reassignment is ever in progress. If the
client forbids to change the number of replicas (v1), several replicas get error 38.
"""

from collections import Counter
from collections.abc import Sequence
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
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResult,
    ReassignableTopicResult,
)

HOW_PARTITIONS_MOVE: Final = (
    "The brokers share the partitions among themselves, and the store keeps the copies: `millpond cluster rebalance` "
    "spreads the partitions, and `millpond cluster drain` empties a broker."
)


@handles(AlterPartitionReassignmentsRequest, rights=(ALTER_CLUSTER,))
async def alter_partition_reassignments(
    call: KafkaCall, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    refusal = _refusal(call)
    if refusal is None:
        await call.ensure_known(None, (topic.name for topic in request.topics))
    replicas, turns = _Replicas(call, request.allow_replication_factor_change), Turns()
    code, message = _code_and_message(refusal)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=[
            ReassignableTopicResult(
                name=topic.name,
                partitions=[
                    _result(part.partition_index, refusal or replicas.refusal(topic.name, part))
                    async for part in turns.over(topic.partitions)
                ],
            )
            async for topic in turns.over(request.topics)
        ],
    )


def _refusal(call: KafkaCall) -> NotAuthorized | None:
    """Why the whole request is refused."""
    try:
        call.require(ALTER_CLUSTER)
    except NotAuthorized as error:
        return error
    return None


class _Replicas:
    """Checks the replicas of one request, in the order of Kafka's checks."""

    def __init__(self, call: KafkaCall, may_change_count: bool) -> None:
        self._topics = call.log.topics
        self._leaders = Leaders(call)
        self._nodes = {node.id for node in call.nodes()}
        self._may_change_count = may_change_count

    def refusal(self, name: str, asked: ReassignablePartition) -> KafkaRefusal | None:
        try:
            leader = self._leaders.of(self._topics.partition(name, asked.partition_index))
            if asked.replicas is None:
                message = "No reassignment of the partition is in progress."
                raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, message)
            self._check_brokers(asked.replicas)
            self._check_count(asked.replicas)
        except REFUSALS as error:
            return error
        if leader is not None and asked.replicas == [leader.node_id]:
            return None
        owner = "no live broker at the moment" if leader is None else f"broker {leader.node_id}"
        return _invalid(
            f"The partition is owned by {owner}, and clients cannot move it. {HOW_PARTITIONS_MOVE}"
        )

    def _check_brokers(self, replicas: Sequence[int]) -> None:
        if not replicas:
            raise _invalid("The list of replicas is empty.")
        for node_id, times in Counter(replicas).items():
            if node_id not in self._nodes:
                raise _invalid(f"There is no broker {node_id}.")
            if times > 1:
                raise _invalid(f"Broker {node_id} is listed more than once.")

    def _check_count(self, replicas: Sequence[int]) -> None:
        if len(replicas) > 1 and not self._may_change_count:
            message = f"The number of replicas would change from 1 to {len(replicas)}."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _result(number: int, refusal: KafkaRefusal | None) -> ReassignablePartitionResult:
    code, message = _code_and_message(refusal)
    return ReassignablePartitionResult(partition_index=number, error_code=code, error_message=message)


def _code_and_message(refusal: KafkaRefusal | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if refusal is None else code_and_message(refusal)
