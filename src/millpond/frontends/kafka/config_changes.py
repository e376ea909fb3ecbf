"""Shared by AlterConfigs and IncrementalAlterConfigs: both change the configs of topics, groups and brokers.

Each alteration is a plan that runs inside the transaction that stores its result (see `model/config_changes.py`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.configs import ConfigResourceType
from millpond.frontends.kafka.errors import REFUSALS, code_and_message
from millpond.frontends.kafka.internal_topics import check_not_internal
from millpond.frontends.kafka.rights import ALTER_BROKER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS
from millpond.frontends.kafka.turns import Turns
from millpond.model.config_changes import ConfigPlan
from millpond.model.errors import InvalidRequest
from millpond.model.ids import check_topic_name
from millpond.model.topics import altered
from millpond.protocol.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResource,
)

R = TypeVar("R", AlterConfigsResource, IncrementalAlterConfigsResource)
ALTER_RIGHTS: Final = (ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_BROKER_CONFIGS)


async def alter(
    call: KafkaCall, resources: Sequence[R], plan_of: Callable[[R], ConfigPlan], *, validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    """Alter each resource independently: an error for one resource does not affect the others."""
    await call.ensure_known(
        ALTER_TOPIC_CONFIGS,
        (each.resource_name for each in resources if each.resource_type == ConfigResourceType.TOPIC),
    )
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    results = []
    async for each in Turns().over(resources):
        result = AlterConfigsResourceResponse(
            resource_type=each.resource_type, resource_name=each.resource_name
        )
        try:
            _require(call, each.resource_type, each.resource_name)
            if times[each.resource_type, each.resource_name] > 1:
                raise InvalidRequest(reason="the resource is named more than once")
            names = [config.name for config in each.configs]
            if len(set(names)) < len(names):
                raise InvalidRequest(reason="a config is named more than once")
            await _alter_one(call, each, plan_of(each), validate_only=validate_only)
        except REFUSALS as error:
            result.error_code, result.error_message = code_and_message(error)
        results.append(result)
    return results


def _require(call: KafkaCall, kind: int, name: str) -> None:
    if kind == ConfigResourceType.TOPIC:
        call.require(ALTER_TOPIC_CONFIGS, name)
    elif kind == ConfigResourceType.GROUP:
        call.require(ALTER_GROUP_CONFIGS, name)
    else:
        call.require(ALTER_BROKER_CONFIGS)


async def _alter_one(call: KafkaCall, resource: R, plan: ConfigPlan, *, validate_only: bool) -> None:
    kind, name = resource.resource_type, resource.resource_name
    configs = call.services.config_administration
    if kind == ConfigResourceType.TOPIC:
        await _alter_topic(call, name, plan, validate_only=validate_only)
    elif kind == ConfigResourceType.GROUP:
        await configs.alter_group(call.access, name, plan, validate_only=validate_only)
    elif kind == ConfigResourceType.BROKER:
        await configs.alter_broker(call.access, name, plan, validate_only=validate_only)
    else:
        raise InvalidRequest(reason=f"there are no configs of resource type {kind} here")


async def _alter_topic(call: KafkaCall, name: str, plan: ConfigPlan, *, validate_only: bool) -> None:
    check_not_internal(call.log.topics, name)
    topic = call.log.topics.named(check_topic_name(name))
    if validate_only:
        altered(topic.overrides, plan, topic.broker_defaults)
    else:
        await call.services.topic_changes.alter_config(call.access, name, plan)


def given(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(reason=f"there is no value for {name!r}")
    return value
