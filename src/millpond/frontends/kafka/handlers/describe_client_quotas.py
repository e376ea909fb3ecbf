"""DescribeClientQuotas (48), v0-1: lists the quotas whose entities match a filter.

A filter has a component for each type (user, client-id, ip): match type 0 selects a name, 1 the default of the type, 2
both. An entity needs all types of the filter, and with `strict` no others. An address stands alone. A type twice, an
unknown match type, or a name where none belongs is error 42, an unknown type 35. Quotas of topics, which Kafka does not
know, are left out. While security is off, the response is error 54.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Final

from millpond.frontends.kafka.acl_codes import SECURITY_OFF
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import REFUSALS, KafkaError, code_and_message
from millpond.frontends.kafka.quota_entities import FIELDS, UNSUPPORTED_TYPE, parts_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_BROKER_CONFIGS
from millpond.model.errors import InvalidRequest
from millpond.model.quotas import EVERY_NAME, ClientQuota, QuotaEntity
from millpond.protocol import ErrorCode
from millpond.protocol.messages.quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotaEntity,
    DescribedQuotaEntry,
    DescribedQuotaValue,
    QuotaFilterComponent,
)

EXACT, DEFAULT, ANY = 0, 1, 2
ANY_NAME: Final = None

Wanted = Mapping[str, str | None]
"""The name that each field of an entity must have; None for any."""


@handles(DescribeClientQuotasRequest, rights=(DESCRIBE_BROKER_CONFIGS,))
async def describe_client_quotas(
    call: KafkaCall, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    if not call.services.security.enabled:
        return _refused(ErrorCode.SECURITY_DISABLED, SECURITY_OFF)
    try:
        call.require(DESCRIBE_BROKER_CONFIGS)
        wanted = _wanted(request)
        stored = call.services.security_administration.list_quotas(call.access)
    except REFUSALS as error:
        return _refused(*code_and_message(error))
    found = [
        each
        for each in stored
        if each.entity.topic is None and _matches(each.entity, wanted, strict=request.strict)
    ]
    by_entity = groupby(found, key=lambda each: each.entity)
    return DescribeClientQuotasResponse(
        entries=[_entry(entity, list(quotas)) for entity, quotas in by_entity]
    )


def _refused(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _wanted(request: DescribeClientQuotasRequest) -> Wanted:
    wanted: dict[str, str | None] = {}
    for component in request.components:
        field = FIELDS.get(component.entity_type)
        if field is None:
            raise KafkaError(UNSUPPORTED_TYPE, f"Entities of type {component.entity_type!r} have no quotas.")
        if field in wanted:
            raise InvalidRequest(reason=f"the filter has more than one {component.entity_type}")
        wanted[field] = _name(component)
    if "ip" in wanted and len(wanted) > 1:
        raise InvalidRequest(reason="a quota of an address has no user and no client id")
    return wanted


def _name(component: QuotaFilterComponent) -> str | None:
    if component.match_type == EXACT:
        if component.match is None:
            raise InvalidRequest(reason="a component that selects a name has none")
        return component.match or "\0"  # an empty name selects nothing
    if component.match_type not in (DEFAULT, ANY):
        raise InvalidRequest(reason=f"{component.match_type} is not a match type")
    if component.match is not None:
        raise InvalidRequest(reason="only a component that selects a name has one")
    return EVERY_NAME if component.match_type == DEFAULT else ANY_NAME


def _matches(entity: QuotaEntity, wanted: Wanted, *, strict: bool) -> bool:
    present = {field: name for field, name in entity._asdict().items() if name is not None}
    if strict and present.keys() != wanted.keys():
        return False
    return all(field in present and name in (ANY_NAME, present[field]) for field, name in wanted.items())


def _entry(entity: QuotaEntity, quotas: list[ClientQuota]) -> DescribedQuotaEntry:
    return DescribedQuotaEntry(
        entity=[DescribedQuotaEntity(entity_type=kind, entity_name=name) for kind, name in parts_of(entity)],
        values=[DescribedQuotaValue(key=each.key, value=each.value) for each in quotas],
    )
