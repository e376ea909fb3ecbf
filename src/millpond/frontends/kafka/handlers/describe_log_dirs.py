"""DescribeLogDirs (35), v1-4: returns the size of each partition in bytes, in one directory that stands for
the store.

Null topics request all topics; partitions that do not exist are left out. The size of the store is unknown:
-1 (v4). Without DESCRIBE on the cluster there are no directories and, from v3, an error.
"""

from collections.abc import Mapping

from millpond.catalog import partitions
from millpond.catalog.database import CatalogTransaction
from millpond.catalog.partitions import PartitionRow
from millpond.frontends.kafka.broker_configs import LOG_DIR
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_CLUSTER
from millpond.model.errors import MillpondError, NotAuthorized, UnknownTopic
from millpond.model.topics import Topic
from millpond.protocol.messages.cluster import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

RequestedTopics = Mapping[str, tuple[Topic, frozenset[int] | None]]
"""Topics by name, each with the requested partitions; None means all of them."""


@handles(DescribeLogDirsRequest, rights=(DESCRIBE_CLUSTER,))
async def describe_log_dirs(call: KafkaCall, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    try:
        call.require(DESCRIBE_CLUSTER)
    except NotAuthorized as error:
        return DescribeLogDirsResponse(error_code=code_of(error), results=[])
    wanted = _wanted(call, request)
    try:
        found = await call.log.read(lambda tx: _read(tx, wanted))
    except MillpondError as error:
        code = code_of(error)
        failed = DescribeLogDirsResult(error_code=code, log_dir=LOG_DIR, topics=[])
        return DescribeLogDirsResponse(error_code=code, results=[failed])
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=LOG_DIR, topics=found)])


def _wanted(call: KafkaCall, request: DescribeLogDirsRequest) -> RequestedTopics:
    if request.topics is None:
        return {topic.name: (topic, None) for topic in call.log.topics.all()}
    wanted: dict[str, tuple[Topic, frozenset[int] | None]] = {}
    for each in request.topics:
        try:
            wanted[each.topic] = (call.log.topics.named(each.topic), frozenset(each.partitions))
        except UnknownTopic:
            continue
    return wanted


def _read(tx: CatalogTransaction, wanted: RequestedTopics) -> list[DescribeLogDirsTopic]:
    return [
        DescribeLogDirsTopic(
            name=name,
            partitions=[
                _partition(row)
                for row in partitions.of_topic(tx, topic.id)
                if numbers is None or row.topic_partition.partition in numbers
            ],
        )
        for name, (topic, numbers) in wanted.items()
    ]


def _partition(row: PartitionRow) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=row.topic_partition.partition, partition_size=row.bytes, offset_lag=0
    )
