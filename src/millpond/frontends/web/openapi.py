"""Builds the OpenAPI 3.1 document from the same declarations that route requests to the handlers."""

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from millpond.frontends.web.errors import MISDIRECTED
from millpond.frontends.web.operations import JSON, NO_BODY, NonJsonContent, Operation
from millpond.frontends.web.schemas import SUFFIX, ProblemJson
from millpond.security.requirements import PUBLIC

VERSION: Final = "3.1.0"
REFERENCE: Final = "#/components/schemas/{name}"
ALWAYS_REFUSED: Final = (400, 403, 408, 429, 431, 500, 503)
"""Statuses that any operation can be refused with."""
BODY_REFUSED: Final = (413, 415)
AUTHENTICATION: Final = {
    "basic": {"type": "http", "scheme": "basic", "description": "The name and password of a user."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API token, or a JWT."},
}
"""How clients authenticate if the broker's security is on; a client certificate is enough, too."""

Schema = dict[str, Any]
Structs = Sequence[type[msgspec.Struct]]


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
            "components": {"schemas": _components(found), "securitySchemes": AUTHENTICATION},
            "security": [{name: []} for name in AUTHENTICATION],
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
    if operation.rule is PUBLIC:
        shown["security"] = []
    if operation.body is not NO_BODY:
        shown["requestBody"] = {
            "required": operation.body.required,
            "content": {
                content_type: {"schema": _body(content)}
                for content_type, content in operation.body.content_types.items()
            },
        }
    return shown


def _parameters(struct: type[msgspec.Struct], location: str) -> list[Schema]:
    _, components = msgspec.json.schema_components([struct])
    schema = components[struct.__name__]
    return [
        {
            "name": name,
            "in": location,
            "required": location == "path" or name in schema.get("required", ()),
            "schema": content,
        }
        for name, content in schema["properties"].items()
    ]


def _responses(operation: Operation) -> Schema:
    given = {
        str(status): {"description": _meaning(status, content)} | _content(content)
        for status, content in operation.returns.items()
    }
    refusal = {"content": {JSON: {"schema": _reference(ProblemJson)}}}
    refused = {
        str(status): {"description": HTTPStatus(status).phrase} | refusal for status in refusals(operation)
    }
    return given | refused


def refusals(operation: Operation) -> list[int]:
    """Every status that the operation can be refused with."""
    statuses = {*ALWAYS_REFUSED, *operation.error_statuses}
    if operation.rule is not PUBLIC:
        statuses.add(401)
    if operation.body is not NO_BODY:
        statuses.update(BODY_REFUSED)
    if operation.redirects:
        statuses.update((307, MISDIRECTED))
    return sorted(statuses)


def _meaning(status: int, content: object) -> str:
    return content.meaning if isinstance(content, NonJsonContent) else HTTPStatus(status).phrase


def _content(content: type[msgspec.Struct] | Structs | NonJsonContent | None) -> Schema:
    if content is None:
        return {}
    if isinstance(content, NonJsonContent):
        return {"content": {media_type: {} for media_type in content.media_types}}
    structs = [content] if isinstance(content, type) else content
    return {"content": {JSON: {"schema": _any_of(structs)}}}


def _body(content: Structs | str) -> Schema:
    return {"type": "string", "description": content} if isinstance(content, str) else _any_of(content)


def _any_of(structs: Structs) -> Schema:
    references = [_reference(struct) for struct in structs]
    return references[0] if len(references) == 1 else {"anyOf": references}


def _reference(struct: type[msgspec.Struct]) -> Schema:
    return {"$ref": REFERENCE.format(name=struct.__name__.removesuffix(SUFFIX))}


def _components(operations: Iterable[Operation]) -> Mapping[str, Schema]:
    structs: dict[type[msgspec.Struct], None] = {ProblemJson: None}
    for operation in operations:
        for content in (*operation.body.content_types.values(), *operation.returns.values()):
            if isinstance(content, type):
                structs[content] = None
            elif content is not None and not isinstance(content, str | NonJsonContent):
                structs.update(dict.fromkeys(content))
    _, components = msgspec.json.schema_components(structs, ref_template=REFERENCE)
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
