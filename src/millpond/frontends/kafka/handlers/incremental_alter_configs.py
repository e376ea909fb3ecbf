"""IncrementalAlterConfigs (44), v0-1: sets single configs of a topic, group or broker, or resets them.

Values can also be appended to list configs or removed from them, starting from the value in effect; many clients can do
so at one time. `validate_only` checks and changes nothing.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.config_changes import ALTER_RIGHTS, alter, given
from millpond.frontends.kafka.registry import handles
from millpond.model.config_changes import ConfigAlteration, ConfigOperation, ConfigPlan, altering
from millpond.model.errors import InvalidRequest
from millpond.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)


@handles(IncrementalAlterConfigsRequest, rights=ALTER_RIGHTS)
async def incremental_alter_configs(
    call: KafkaCall, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    results = await alter(call, request.resources, _plan_of, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(responses=results)


def _plan_of(resource: IncrementalAlterConfigsResource) -> ConfigPlan:
    return altering([_alteration(config) for config in resource.configs])


def _alteration(config: IncrementalAlterableConfig) -> ConfigAlteration:
    number = config.config_operation
    if number == ConfigOperation.DELETE:
        return ConfigAlteration(config.name, ConfigOperation.DELETE)
    value = given(config.name, config.value)
    try:
        return ConfigAlteration(config.name, ConfigOperation(number), value)
    except ValueError:
        raise InvalidRequest(reason=f"there is no change of kind {number}") from None
