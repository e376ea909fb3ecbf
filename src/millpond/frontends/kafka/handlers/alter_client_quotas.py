"""AlterClientQuotas (49), v0-1: sets and removes quotas. Each entity has its own result; valid ones are changed in one
transaction.

An entity has a user, a client id, or both, or an address; a null name is the default of the type. Values are above 0,
and rates of bytes and connections whole numbers. An unknown key, a key twice for an entity, or an entity twice is error
42. `validate_only` checks and changes nothing. While security is off, the response is error 54.
"""

from collections import Counter

from millpond.frontends.kafka.acl_codes import SECURITY_OFF
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.quota_entities import requested_entity
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import ALTER_BROKER_CONFIGS
from millpond.model.errors import InvalidRequest, MillpondError
from millpond.model.quotas import QuotaChanges, QuotaEntity, check_quota
from millpond.protocol import ErrorCode
from millpond.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlteration,
    QuotaAlterationResult,
    QuotaOperation,
)

Planned = tuple[QuotaEntity, QuotaChanges]


@handles(AlterClientQuotasRequest, rights=(ALTER_BROKER_CONFIGS,))
async def alter_client_quotas(
    call: KafkaCall, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    if not call.services.security.enabled:
        return _all_refused(request, ErrorCode.SECURITY_DISABLED, SECURITY_OFF)
    try:
        call.require(ALTER_BROKER_CONFIGS)
        times = Counter(_key(each) for each in request.entries)
        planned = [_planned(each, is_repeated=times[_key(each)] > 1) for each in request.entries]
        valid = [each for each in planned if not isinstance(each, MillpondError)]
        await call.services.security_administration.alter_quotas(
            call.access, valid, validate_only=request.validate_only
        )
    except MillpondError as error:
        return _all_refused(request, code_of(error), str(error))
    return AlterClientQuotasResponse(
        entries=[_result(entry, each) for entry, each in zip(request.entries, planned, strict=True)]
    )


def _all_refused(
    request: AlterClientQuotasRequest, code: ErrorCode, message: str
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            QuotaAlterationResult(error_code=code, error_message=message, entity=each.entity)
            for each in request.entries
        ]
    )


def _key(entry: QuotaAlteration) -> frozenset[tuple[str, str | None]]:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _planned(entry: QuotaAlteration, *, is_repeated: bool) -> Planned | InvalidRequest:
    try:
        if is_repeated:
            raise InvalidRequest(reason="the entity is named more than once")
        entity, changes = requested_entity(entry.entity), _changes(entry.ops)
        check_quota(entity, changes)
    except InvalidRequest as error:
        return error
    return entity, changes


def _changes(operations: list[QuotaOperation]) -> QuotaChanges:
    changes: dict[str, float | None] = {}
    for operation in operations:
        if operation.key in changes:
            raise InvalidRequest(reason=f"the quota {operation.key!r} is named more than once")
        changes[operation.key] = None if operation.remove else operation.value
    return changes


def _result(entry: QuotaAlteration, planned: Planned | InvalidRequest) -> QuotaAlterationResult:
    if isinstance(planned, InvalidRequest):
        code, message = code_of(planned), str(planned)
        return QuotaAlterationResult(error_code=code, error_message=message, entity=entry.entity)
    return QuotaAlterationResult(entity=entry.entity)
