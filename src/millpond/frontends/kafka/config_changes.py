"""Shared by AlterConfigs and IncrementalAlterConfigs. Both change the configs of topics only."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.configs import ConfigResourceType
from millpond.frontends.kafka.errors import REFUSALS, code_and_message
from millpond.frontends.kafka.rights import ALTER_BROKER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS
from millpond.model.configs import check_change, check_configs
from millpond.model.errors import InvalidRequest
from millpond.model.ids import check_topic_name
from millpond.model.topics import Topic
from millpond.protocol.messages.configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResource,
)

R = TypeVar("R", AlterConfigsResource, IncrementalAlterConfigsResource)
ALTER_RIGHTS: Final = (ALTER_TOPIC_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_BROKER_CONFIGS)
ConfigChanges = Mapping[str, str | None]
"""New values by name; None resets a config to its default."""


async def alter(
    call: KafkaCall, resources: Sequence[R], plan: Callable[[R, Topic], ConfigChanges], *, validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    """Alter each resource independently: an error for one resource does not affect the others."""
    await call.ensure_known(
        ALTER_TOPIC_CONFIGS,
        (each.resource_name for each in resources if each.resource_type == ConfigResourceType.TOPIC),
    )
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    results = []
    for each in resources:
        result = AlterConfigsResourceResponse(
            resource_type=each.resource_type, resource_name=each.resource_name
        )
        try:
            _require(call, each.resource_type, each.resource_name)
            if times[each.resource_type, each.resource_name] > 1:
                raise InvalidRequest(reason="the resource is named more than once")
            await _alter_one(call, each, plan, validate_only=validate_only)
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


async def _alter_one(
    call: KafkaCall, resource: R, plan: Callable[[R, Topic], ConfigChanges], *, validate_only: bool
) -> None:
    names = [config.name for config in resource.configs]
    if len(set(names)) < len(names):
        raise InvalidRequest(reason="a config is named more than once")
    topic = _topic(call, resource.resource_type, resource.resource_name)
    changes = plan(resource, topic)
    check_configs({name: value for name, value in changes.items() if value is not None})
    merged = {**topic.overrides, **changes}
    check_change(topic.overrides, {name: value for name, value in merged.items() if value is not None})
    if changes and not validate_only:
        await call.services.topic_changes.alter_config(call.access, topic.name, changes)


def _topic(call: KafkaCall, kind: int, name: str) -> Topic:
    if kind == ConfigResourceType.BROKER:
        raise InvalidRequest(reason="the broker's configs are fixed when it starts; change its settings")
    if kind != ConfigResourceType.TOPIC:
        raise InvalidRequest(reason=f"there are no configs of resource type {kind} here")
    return call.log.topics.named(check_topic_name(name))


def given(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidRequest(reason=f"there is no value for {name!r}")
    return value
