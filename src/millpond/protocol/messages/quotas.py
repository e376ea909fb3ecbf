"""DescribeClientQuotas (48) and AlterClientQuotas (49): the quotas of users and client ids."""

from millpond.protocol.schema import (
    Bool,
    Float64,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    field,
    request,
    response,
    struct,
)


@struct
class QuotaFilterComponent(Struct):
    entity_type: String
    match_type: Int8
    match: String | None


@request(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Request):
    components: list[QuotaFilterComponent]
    strict: Bool


@struct
class DescribedQuotaEntity(Struct):
    entity_type: String
    entity_name: String | None


@struct
class DescribedQuotaValue(Struct):
    key: String
    value: Float64


@struct
class DescribedQuotaEntry(Struct):
    entity: list[DescribedQuotaEntity]
    values: list[DescribedQuotaValue]


@response(to=DescribeClientQuotasRequest)
class DescribeClientQuotasResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    entries: list[DescribedQuotaEntry] | None


@struct
class AlteredQuotaEntity(Struct):
    entity_type: String
    entity_name: String | None


@struct
class QuotaOperation(Struct):
    key: String
    value: Float64
    remove: Bool


@struct
class QuotaAlteration(Struct):
    entity: list[AlteredQuotaEntity]
    ops: list[QuotaOperation]


@request(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Request):
    entries: list[QuotaAlteration]
    validate_only: Bool


@struct
class QuotaAlterationResult(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    entity: list[AlteredQuotaEntity]


@response(to=AlterClientQuotasRequest)
class AlterClientQuotasResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    entries: list[QuotaAlterationResult]
