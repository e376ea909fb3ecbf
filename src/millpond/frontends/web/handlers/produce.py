"""Produce: appends one or several messages, to a given partition or to the one chosen by key. Responds when
they are durable."""

from typing import NamedTuple

from starlette.datastructures import Headers

from millpond.frontends.web.convert import binary_record, json_records, raw_record
from millpond.frontends.web.handlers.topics import TopicPath
from millpond.frontends.web.operations import JSON, HttpCall, NoParameters, RequestBody, operation
from millpond.frontends.web.rights import WRITE_TOPIC
from millpond.frontends.web.schemas import (
    NewMessageJson,
    NewMessagesJson,
    PartitionNumber,
    PlaceJson,
    ProducedJson,
    ProducedMessagesJson,
    RequestStruct,
)
from millpond.frontends.web.site import Site
from millpond.model.quotas import PRODUCER_BYTE_RATE
from millpond.records import Record
from millpond.security.requirements import needs
from millpond.service import StoredMessage

BINARY = "application/octet-stream"
RAW = (
    "`key:value`, bytes as they are: what is before the first colon is the key. Without a colon there is no key. "
    'A body that begins with `{`, `[` or `"` is a value without a key.'
)


class ProduceContent(NamedTuple):
    """The content of a body. A batch gets a batch response, even if it has a single message."""

    records: list[Record]
    is_batch: bool


def records_of(site: Site, content_type: str, headers: Headers, content: bytes) -> ProduceContent:
    if content_type == JSON:
        check_count = site.services.messages.check_count
        return ProduceContent(*json_records(content, check_count, site.limits.message_parts_max))
    if content_type == BINARY:
        return ProduceContent([binary_record(headers.raw, content)], is_batch=False)
    return ProduceContent([raw_record(content)], is_batch=False)


RECORDS = RequestBody(
    {
        JSON: [NewMessageJson, NewMessagesJson],
        "application/x-www-form-urlencoded": RAW,
        "text/plain": RAW,
        BINARY: "The value. X-Millpond-Key or X-Millpond-Key-Base64 is the key, X-Millpond-Header-<name> a header "
        "of the message, X-Millpond-Timestamp its time.",
    },
    records_of,
    required=False,
    holds_messages=True,
)


class PartitionPath(RequestStruct, frozen=True):
    topic: str
    partition: PartitionNumber


@operation(
    "POST",
    "/topics/{topic}/produce/{partition}",
    rights=needs(WRITE_TOPIC, counts=PRODUCER_BYTE_RATE),
    parameters=PartitionPath,
    query=NoParameters,
    body=RECORDS,
    returns={200: [ProducedJson, ProducedMessagesJson]},
    error_statuses=(404,),
    redirects=True,
)
async def produce_to_partition(
    call: HttpCall[PartitionPath, NoParameters, ProduceContent],
) -> ProducedJson | ProducedMessagesJson:
    """Append to one partition. A topic that does not exist is created."""
    messages = call.site.services.messages
    placed = await messages.produce(
        call.path.topic, call.body.records, call.path.partition, access=call.access
    )
    return _produced(call.path.topic, placed, call.body.is_batch)


@operation(
    "POST",
    "/topics/{topic}/produce",
    rights=needs(WRITE_TOPIC, counts=PRODUCER_BYTE_RATE),
    parameters=TopicPath,
    query=NoParameters,
    body=RECORDS,
    returns={200: [ProducedJson, ProducedMessagesJson]},
    error_statuses=(404,),
    redirects=True,
)
async def produce(
    call: HttpCall[TopicPath, NoParameters, ProduceContent],
) -> ProducedJson | ProducedMessagesJson:
    """Append to the partition of the key, as Kafka's clients choose it; messages without a key alternate between
    partitions. A topic that does not exist is created."""
    placed = await call.site.services.messages.produce(call.path.topic, call.body.records, access=call.access)
    return _produced(call.path.topic, placed, call.body.is_batch)


def _produced(topic: str, placed: list[StoredMessage], is_batch: bool) -> ProducedJson | ProducedMessagesJson:
    if is_batch:
        return ProducedMessagesJson([PlaceJson(each.partition, each.offset) for each in placed])
    return ProducedJson(topic, placed[0].partition, placed[0].offset, placed[0].offset + 1)
