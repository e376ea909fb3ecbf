"""IncrementalAlterConfigs (44), v0-1: sets single configs of a topic, or resets them to their defaults.

Values can also be appended to list configs or removed from them, starting from the value in effect.
`validate_only` checks and changes nothing. The broker's configs are fixed when it starts.
"""

from enum import IntEnum

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.config_changes import ALTER_RIGHTS, ConfigChanges, alter, given
from millpond.frontends.kafka.registry import handles
from millpond.model.configs import DEFINITIONS, ConfigType
from millpond.model.errors import InvalidConfig, InvalidRequest
from millpond.model.topics import Topic
from millpond.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


class Change(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@handles(IncrementalAlterConfigsRequest, rights=ALTER_RIGHTS)
async def incremental_alter_configs(
    call: KafkaCall, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    results = await alter(call, request.resources, _changes, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=results)


def _changes(resource: IncrementalAlterConfigsResource, topic: Topic) -> ConfigChanges:
    return {config.name: _changed(config, topic) for config in resource.configs}


def _changed(config: IncrementalAlterableConfig, topic: Topic) -> str | None:
    change = config.config_operation
    if change == Change.DELETE:
        return None
    value = given(config.name, config.value)
    if change == Change.SET:
        return value
    if change not in (Change.APPEND, Change.SUBTRACT):
        raise InvalidRequest(reason=f"there is no change of kind {change}")
    definition = DEFINITIONS.get(config.name)
    if definition is None or definition.kind is not ConfigType.LIST:
        raise InvalidConfig(key=config.name, value=value, reason="only a list can be added to or taken from")
    present = _words(topic.describe_config()[config.name].value)
    if change == Change.APPEND:
        return ",".join(dict.fromkeys(present + _words(value)))
    return ",".join(word for word in present if word not in _words(value))


def _words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]
