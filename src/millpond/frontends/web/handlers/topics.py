"""Topics: create, list, describe, alter, delete."""

import uuid

from msgspec import UNSET

from millpond.frontends.web.operations import NO_BODY, HttpCall, NoParameters, json_body, operation
from millpond.frontends.web.rights import DESCRIBE_TOPIC, TOPIC
from millpond.frontends.web.schemas import (
    ConfigJson,
    CreatedTopicJson,
    NewTopicJson,
    PartitionJson,
    RequestStruct,
    TopicChangesJson,
    TopicDetailsJson,
    TopicJson,
    TopicsJson,
)
from millpond.model import topics as model
from millpond.model.acls import AclOperation, ResourceType
from millpond.security.access import Access
from millpond.security.requirements import AnyOf, Needs, Shows, needs
from millpond.service import Administration

NOTE = (
    "The request named no number of partitions: a topic created here gets {count} (setting http_partitions), one "
    'that is created in another way gets default_partitions. Send {{"partitions": 1}} with the name to choose.'
)

ALTER_PARTITIONS = Needs(AclOperation.ALTER, ResourceType.TOPIC, of=TOPIC, when=("body.partitions",))
ALTER_CONFIGS = Needs(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, of=TOPIC, when=("body.configs",))


class TopicPath(RequestStruct, frozen=True):
    topic: str


@operation(
    "POST",
    "/topics",
    rights=needs(
        AnyOf(
            Needs(AclOperation.CREATE, ResourceType.TOPIC, of="body.name"),
            Needs(AclOperation.CREATE, ResourceType.CLUSTER),
        )
    ),
    parameters=NoParameters,
    query=NoParameters,
    body=json_body(NewTopicJson),
    returns={200: CreatedTopicJson},
    error_statuses=(409,),
)
async def create_topic(call: HttpCall[NoParameters, NoParameters, NewTopicJson]) -> CreatedTopicJson:
    """Create a topic. Without `partitions` the setting http_partitions decides (100 unless set), and `note` in the
    response says so; every other way to create a topic uses default_partitions (1 unless set)."""
    new = call.body
    services = call.site.services
    count = services.default_partitions if new.partitions is UNSET else new.partitions
    created = await services.administration.create_topic(new.name, count, new.configs, access=call.access)
    made = topic_of(created, call.access)
    note = NOTE.format(count=count) if new.partitions is UNSET else UNSET
    return CreatedTopicJson(made.name, made.id, made.partitions, made.created_at_ms, made.configs, note)


@operation(
    "GET",
    "/topics",
    rights=needs(Shows(AclOperation.DESCRIBE, ResourceType.TOPIC)),
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: TopicsJson},
)
async def list_topics(call: HttpCall[NoParameters, NoParameters, None]) -> TopicsJson:
    """List the topics that the client may describe, by name."""
    return TopicsJson(
        [topic_of(each, call.access) for each in call.site.services.administration.topics(call.access)]
    )


@operation(
    "GET",
    "/topics/{topic}",
    rights=needs(DESCRIBE_TOPIC),
    parameters=TopicPath,
    query=NoParameters,
    body=NO_BODY,
    returns={200: TopicDetailsJson},
    error_statuses=(404,),
)
async def describe_topic(call: HttpCall[TopicPath, NoParameters, None]) -> TopicDetailsJson:
    """Describe a topic: its partitions, and every config with the source of its value. Without DESCRIBE_CONFIGS on the
    topic, a client sees only the configs that limit what it may produce."""
    found = await call.site.services.administration.describe_topic(call.path.topic)
    configs = Administration.visible_configs(call.access, found.topic.name, found.configs)
    return TopicDetailsJson(
        name=found.topic.name,
        id=_id_of(found.topic),
        created_at_ms=found.topic.created_at,
        partitions=[
            PartitionJson(each.partition, each.log_start, each.end_offset, each.size_bytes)
            for each in found.partitions
        ],
        configs={name: ConfigJson(each.value, each.source.value) for name, each in configs.items()},
    )


@operation(
    "PATCH",
    "/topics/{topic}",
    rights=needs(DESCRIBE_TOPIC, ALTER_PARTITIONS, ALTER_CONFIGS),
    parameters=TopicPath,
    query=NoParameters,
    body=json_body(TopicChangesJson),
    returns={200: TopicJson},
    error_statuses=(404, 409),
)
async def alter_topic(call: HttpCall[TopicPath, NoParameters, TopicChangesJson]) -> TopicJson:
    """Add partitions, change configs, or both."""
    wanted = call.body
    altered = await call.site.services.administration.alter_topic(
        call.path.topic,
        count=None if wanted.partitions is UNSET else wanted.partitions,
        changes=wanted.configs,
        access=call.access,
    )
    return topic_of(altered, call.access)


@operation(
    "DELETE",
    "/topics/{topic}",
    rights=needs(Needs(AclOperation.DELETE, ResourceType.TOPIC, of=TOPIC)),
    parameters=TopicPath,
    query=NoParameters,
    body=NO_BODY,
    returns={204: None},
    error_statuses=(404,),
)
async def delete_topic(call: HttpCall[TopicPath, NoParameters, None]) -> None:
    """Delete a topic and all its messages."""
    await call.site.services.administration.delete_topic(call.path.topic, access=call.access)


def topic_of(topic: model.Topic, access: Access) -> TopicJson:
    configs = Administration.visible_configs(access, topic.name, topic.overrides)
    return TopicJson(topic.name, _id_of(topic), topic.partitions, topic.created_at, configs)


def _id_of(topic: model.Topic) -> str:
    return str(uuid.UUID(bytes=topic.id))
