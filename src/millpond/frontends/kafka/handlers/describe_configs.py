"""DescribeConfigs (32), v1-4: returns all configs of a topic, a group or this broker, with their values and sources.

Null or empty keys request all configs. Synonyms and (from v3) documentation are included on request. The
broker is addressed by its node id; the empty name returns what is set for every broker. A group need not exist.
"""

from millpond.frontends.kafka.broker_configs import broker_entries, every_broker_entries
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.configs import (
    CONFIG_TYPES,
    ConfigEntry,
    ConfigResourceType,
    group_entries,
    topic_entries,
)
from millpond.frontends.kafka.errors import REFUSALS, code_and_message
from millpond.frontends.kafka.internal_topics import find_internal
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import (
    DESCRIBE_BROKER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
)
from millpond.frontends.kafka.turns import Turns
from millpond.model.dynamic_configs import EVERY_BROKER
from millpond.model.errors import InvalidRequest
from millpond.model.ids import check_topic_name
from millpond.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@handles(
    DescribeConfigsRequest, rights=(DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_BROKER_CONFIGS)
)
async def describe_configs(call: KafkaCall, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    await call.ensure_known(
        DESCRIBE_TOPIC_CONFIGS,
        (each.resource_name for each in request.resources if each.resource_type == ConfigResourceType.TOPIC),
    )
    turns = Turns()
    return DescribeConfigsResponse(
        results=[await _one(call, request, each, turns) async for each in turns.over(request.resources)]
    )


async def _one(
    call: KafkaCall, request: DescribeConfigsRequest, resource: DescribeConfigsResource, turns: Turns
) -> DescribeConfigsResult:
    kind, name, keys = resource.resource_type, resource.resource_name, resource.configuration_keys
    try:
        _require(call, kind, name)
        entries = _entries(call, kind, name)
    except REFUSALS as error:
        code, message = code_and_message(error)
        return DescribeConfigsResult(
            error_code=code, error_message=message, resource_type=kind, resource_name=name, configs=[]
        )
    configs = [
        _config(request, entry) async for entry in turns.over(entries) if not keys or entry.name in keys
    ]
    return DescribeConfigsResult(resource_type=kind, resource_name=name, configs=configs)


def _require(call: KafkaCall, kind: int, name: str) -> None:
    if kind == ConfigResourceType.TOPIC:
        call.require(DESCRIBE_TOPIC_CONFIGS, name)
    elif kind == ConfigResourceType.GROUP:
        call.require(DESCRIBE_GROUP_CONFIGS, name)
    else:
        call.require(DESCRIBE_BROKER_CONFIGS)


def _entries(call: KafkaCall, kind: int, name: str) -> list[ConfigEntry]:
    if kind == ConfigResourceType.TOPIC:
        topics = call.log.topics
        topic = find_internal(topics, name) or topics.named(check_topic_name(name))
        return topic_entries(topic, call.services.broker_configs)
    if kind == ConfigResourceType.BROKER:
        return _of_broker(call, name)
    if kind == ConfigResourceType.GROUP:
        return group_entries(call.services.config_administration, name)
    raise InvalidRequest(reason=f"there are no configs of resource type {kind} here")


def _of_broker(call: KafkaCall, name: str) -> list[ConfigEntry]:
    node = str(call.services.node.id)
    if name == EVERY_BROKER:
        return every_broker_entries(call.services.broker_configs)
    if name != node:
        raise InvalidRequest(reason=f"this is broker {node}, not {name!r}")
    return broker_entries(call.services)


def _config(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in synonyms
        ],
        config_type=CONFIG_TYPES[entry.kind],
        documentation=entry.documentation if request.include_documentation else None,
    )
