"""Builds the OpenAPI 3.1 document from the same declarations that route requests to the handlers."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from millpond.frontends.web.operations import JSON, NO_BODY, Operation, Other
from millpond.frontends.web.schemas import SUFFIX, ProblemJson

VERSION: Final = "3.1.0"
REFERENCE: Final = "#/components/schemas/{name}"
ALWAYS_REFUSED: Final = (400, 403, 408, 429, 431, 500, 503)
"""Statuses that any operation can be refused with."""
BODY_REFUSED: Final = (413, 415)

Schema = dict[str, Any]
Kinds = Sequence[type[msgspec.Struct]]


def document_of(operations: Iterable[Operation], version: str) -> bytes:
    found = list(operations)
    return msgspec.json.encode(
        {
            "openapi": VERSION,
            "info": {
                "title": "Millpond",
                "version": version,
                "description": "A durable message log. An error is identified by its `code`; numbers count from 1, "
                "offsets from 0.",
                "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
            },
            "paths": _paths(found),
            "components": {"schemas": _components(found)},
        }
    )


def _paths(operations: Iterable[Operation]) -> Schema:
    paths: Schema = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each)
    return paths


def _operation(operation: Operation) -> Schema:
    shown: Schema = {
        "operationId": operation.name,
        "summary": operation.summary.partition(". ")[0].rstrip("."),
        "description": operation.summary,
        "parameters": [
            *_parameters(operation.parameters, "path"),
            *_parameters(operation.query, "query"),
        ],
        "responses": _responses(operation),
    }
    if operation.body is not NO_BODY:
        shown["requestBody"] = {
            "required": operation.body.required,
            "content": {kind: {"schema": _body(holds)} for kind, holds in operation.body.kinds.items()},
        }
    return shown


def _parameters(kind: type[msgspec.Struct], place: str) -> list[Schema]:
    _, components = msgspec.json.schema_components([kind])
    schema = components[kind.__name__]
    return [
        {
            "name": name,
            "in": place,
            "required": place == "path" or name in schema.get("required", ()),
            "schema": holds,
        }
        for name, holds in schema["properties"].items()
    ]


def _responses(operation: Operation) -> Schema:
    given = {
        str(status): {"description": _meaning(status, holds)} | _content(holds)
        for status, holds in operation.returns.items()
    }
    refusal = {"content": {JSON: {"schema": _reference(ProblemJson)}}}
    refused = {
        str(status): {"description": HTTPStatus(status).phrase} | refusal for status in refusals(operation)
    }
    return given | refused


def refusals(operation: Operation) -> list[int]:
    """Every status that the operation can be refused with."""
    statuses = {*ALWAYS_REFUSED, *operation.error_statuses}
    if operation.body is not NO_BODY:
        statuses.update(BODY_REFUSED)
    if operation.redirects:
        statuses.add(307)
    return sorted(statuses)


def _meaning(status: int, holds: object) -> str:
    return holds.meaning if isinstance(holds, Other) else HTTPStatus(status).phrase


def _content(holds: type[msgspec.Struct] | Kinds | Other | None) -> Schema:
    if holds is None:
        return {}
    if isinstance(holds, Other):
        return {"content": {kind: {} for kind in holds.media_types}}
    kinds = [holds] if isinstance(holds, type) else holds
    return {"content": {JSON: {"schema": _any_of(kinds)}}}


def _body(holds: Kinds | str) -> Schema:
    return {"type": "string", "description": holds} if isinstance(holds, str) else _any_of(holds)


def _any_of(kinds: Kinds) -> Schema:
    references = [_reference(kind) for kind in kinds]
    return references[0] if len(references) == 1 else {"anyOf": references}


def _reference(kind: type[msgspec.Struct]) -> Schema:
    return {"$ref": REFERENCE.format(name=kind.__name__.removesuffix(SUFFIX))}


def _components(operations: Iterable[Operation]) -> Mapping[str, Schema]:
    kinds: dict[type[msgspec.Struct], None] = {ProblemJson: None}
    for operation in operations:
        for holds in (*operation.body.kinds.values(), *operation.returns.values()):
            if isinstance(holds, type):
                kinds[holds] = None
            elif holds is not None and not isinstance(holds, str | Other):
                kinds.update(dict.fromkeys(holds))
    _, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    return {name.removesuffix(SUFFIX): _published(schema) for name, schema in components.items()}


def _published(schema: Any) -> Any:
    """The same schema, with the published names of the structs in references and titles."""
    if isinstance(schema, list):
        return [_published(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value.removesuffix(SUFFIX)
        if name in ("$ref", "title") and isinstance(value, str)
        else _published(value)
        for name, value in schema.items()
    }
