"""Health, readiness, metrics, the index and the OpenAPI document."""

import functools

from prometheus_client import CONTENT_TYPE_LATEST

from millpond.frontends.web.errors import HttpError
from millpond.frontends.web.openapi import document_of
from millpond.frontends.web.operations import (
    JSON,
    NO_BODY,
    OPERATIONS,
    HttpCall,
    NonJsonContent,
    NoParameters,
    RawResponse,
    operation,
)
from millpond.frontends.web.rights import DESCRIBE_CLUSTER
from millpond.frontends.web.schemas import IndexJson, StatusJson
from millpond.security.requirements import AUTHENTICATED, PUBLIC, needs

NoInput = HttpCall[NoParameters, NoParameters, None]


@operation(
    "GET",
    "/",
    rights=AUTHENTICATED,
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: IndexJson},
)
async def show_index(call: NoInput) -> IndexJson:
    """List the addresses of this broker and the paths of this interface."""
    services = call.site.services
    paths = list(dict.fromkeys(each.path for each in OPERATIONS))
    return IndexJson("millpond", services.version, dict(services.listeners), paths)


@operation(
    "GET",
    "/healthz",
    rights=PUBLIC,
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: StatusJson},
)
async def check_health(_: NoInput) -> StatusJson:
    """Check that the process responds."""
    return StatusJson("ok")


@operation(
    "GET",
    "/readyz",
    rights=PUBLIC,
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: StatusJson},
)
async def check_readiness(call: NoInput) -> StatusJson:
    """Check that messages are accepted. If not: 503, and `details.reason` is `not_serving` (starting, stopping or
    failed), `disk_full`, `lease_overdue` (the catalog commits nothing) or `writes_refused` (the last flush failed,
    less than 10 s ago). An unreachable store is noticed only when something is produced."""
    why = call.site.services.why_not_ready()
    if why is not None:
        raise HttpError(503, "NotReady", why.message, retriable=True, details={"reason": why.reason})
    return StatusJson("ok")


@operation(
    "GET",
    "/metrics",
    rights=needs(DESCRIBE_CLUSTER),
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: NonJsonContent([CONTENT_TYPE_LATEST.partition(";")[0]], "Prometheus' text format.")},
)
async def show_metrics(call: NoInput) -> RawResponse:
    """Get all metrics in the format of Prometheus."""
    return RawResponse(await call.site.services.metrics_page.text(), CONTENT_TYPE_LATEST)


@operation(
    "GET",
    "/openapi.json",
    rights=AUTHENTICATED,
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: NonJsonContent([JSON], "This document.")},
)
async def show_openapi(call: NoInput) -> RawResponse:
    """Get this interface as an OpenAPI 3.1 document."""
    return RawResponse(_document(call.site.services.version))


@functools.cache
def _document(version: str) -> bytes:
    return document_of(OPERATIONS, version)
