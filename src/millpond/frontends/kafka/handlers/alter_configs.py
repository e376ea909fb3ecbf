"""AlterConfigs (33), v0-2: replaces all configs of a topic, group or broker; configs that are not named return to their
defaults.

Kafka's newer tools use IncrementalAlterConfigs instead. `validate_only` checks and changes nothing.
"""

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.config_changes import ALTER_RIGHTS, alter, given
from millpond.frontends.kafka.registry import handles
from millpond.model.config_changes import ConfigPlan, replacing
from millpond.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)


@handles(AlterConfigsRequest, rights=ALTER_RIGHTS)
async def alter_configs(call: KafkaCall, request: AlterConfigsRequest) -> AlterConfigsResponse:
    results = await alter(call, request.resources, _replaced, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=results)


def _replaced(resource: AlterConfigsResource) -> ConfigPlan:
    return replacing({config.name: given(config.name, config.value) for config in resource.configs})
