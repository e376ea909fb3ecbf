"""ListConfigResources (74), v0-1: lists what has configs: all topics, the brokers, and the groups with configs of their
own.

A request (v1) may name types of resources; without any it asks for all. Version 0 asks for client metrics, which do not
exist here; neither do loggers of brokers.
"""

from collections.abc import Iterable
from typing import Final

from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.configs import ConfigResourceType
from millpond.frontends.kafka.errors import REFUSALS, KafkaError, code_and_message
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_BROKER_CONFIGS
from millpond.protocol import ErrorCode
from millpond.protocol.messages.configs import (
    CLIENT_METRICS,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

BROKER_LOGGER: Final = 8
WITHOUT_RESOURCES: Final = frozenset({BROKER_LOGGER, CLIENT_METRICS})
"""Types that Kafka lists and of which there are none here."""
TYPES: Final = {*ConfigResourceType, *WITHOUT_RESOURCES}


@handles(ListConfigResourcesRequest, rights=(DESCRIBE_BROKER_CONFIGS,))
async def list_config_resources(
    call: KafkaCall, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    asked = _asked(call, request)
    try:
        call.require(DESCRIBE_BROKER_CONFIGS)
        if not asked <= TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "There is no such type of resources.")
    except REFUSALS as error:
        code, _ = code_and_message(error)
        return ListConfigResourcesResponse(error_code=code, config_resources=[])
    return ListConfigResourcesResponse(
        config_resources=[
            ListedConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(asked)
            for name in _names(call, kind)
        ]
    )


def _asked(call: KafkaCall, request: ListConfigResourcesRequest) -> set[int]:
    if call.version == 0:
        return {CLIENT_METRICS}
    return set(request.resource_types) or TYPES


def _names(call: KafkaCall, kind: int) -> Iterable[str]:
    if kind == ConfigResourceType.TOPIC:
        return [topic.name for topic in call.log.topics.all()]
    if kind == ConfigResourceType.BROKER:
        return [str(node.id) for node in call.nodes()]
    if kind == ConfigResourceType.GROUP:
        return call.services.config_administration.groups_with_configs()
    return []
