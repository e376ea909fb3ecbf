"""Entities of quotas as DescribeClientQuotas and AlterClientQuotas name them: a list of types, each with a name or, for
the default of its type, null."""

from collections.abc import Sequence
from typing import Final, Protocol

from millpond.model.errors import InvalidRequest
from millpond.model.quotas import EVERY_NAME, QuotaEntity
from millpond.protocol import ErrorCode

FIELDS: Final = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The field of a `QuotaEntity` for each of Kafka's entity types."""
UNSUPPORTED_TYPE: Final = ErrorCode.UNSUPPORTED_VERSION


class NamedType(Protocol):
    @property
    def entity_type(self) -> str: ...
    @property
    def entity_name(self) -> str | None: ...


def requested_entity(parts: Sequence[NamedType]) -> QuotaEntity:
    """Raises `InvalidRequest`."""
    named: dict[str, str] = {}
    for part in parts:
        field = FIELDS.get(part.entity_type)
        if field is None:
            raise InvalidRequest(reason=f"{part.entity_type!r} is not a type of entities that have quotas")
        if field in named:
            raise InvalidRequest(reason=f"the entity has more than one {part.entity_type}")
        if part.entity_name == "":
            raise InvalidRequest(reason=f"the name of the {part.entity_type} is empty; null is the default")
        named[field] = EVERY_NAME if part.entity_name is None else part.entity_name
    return QuotaEntity(named.get("user"), named.get("client_id"), named.get("ip"))


def parts_of(entity: QuotaEntity) -> list[tuple[str, str | None]]:
    """Types and names, as a response has them."""
    return [
        (kind, getattr(entity, field) or None)
        for kind, field in FIELDS.items()
        if getattr(entity, field) is not None
    ]
