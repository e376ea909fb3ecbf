"""Who sends an HTTP request, and what it may do: the checks before an operation is carried out."""

from dataclasses import replace
from typing import Any, Final, NamedTuple

from msgspec import UNSET
from starlette.datastructures import Headers
from starlette.types import Scope

from millpond.frontends.web.cookies import SESSION, values_of
from millpond.frontends.web.operations import HandlerResult, StreamedResponse
from millpond.frontends.web.site import Site
from millpond.security.gate import ClientProof
from millpond.security.guards import Guard
from millpond.security.requirements import Rule

INTERFACE: Final = "http"
CERTIFICATE: Final = "millpond.certificate"
"""The key of the client's certificate (DER) in the scope of a request."""


class NamingParts(NamedTuple):
    """The parts of a request that name resources."""

    path: Any
    body: Any = None


async def guard_of(site: Site, scope: Scope, headers: Headers, rule: Rule) -> Guard | None:
    """Authenticates the client. None if there is nothing to check: security is off, or the operation is public."""
    gate = site.services.gate
    if rule.is_public or not gate.enabled:
        return None
    proof = proof_of(site, scope, headers)
    access = await (gate.admit_anyone(proof) if rule.is_optional else gate.admit(proof))
    return Guard(access, rule, read_field)


def proof_of(site: Site, scope: Scope, headers: Headers) -> ClientProof:
    client = scope.get("client")
    return ClientProof(
        interface=INTERFACE,
        host=client[0] if client else "",
        authorization=headers.getlist("authorization"),
        certificate=scope.get(CERTIFICATE),
        encrypted=scope.get("scheme") == "https",
        sessions=values_of(headers, SESSION, secure=site.is_secure) if "cookie" in headers else (),
    )


def read_field(owner: Any, name: str) -> Any:
    value = getattr(owner, name)
    return None if value is UNSET else value


def guarded_result(result: HandlerResult, site: Site, guard: Guard, rule: Rule) -> HandlerResult:
    """A response that waited for data, or that is a stream, is sent only while the client has its rights."""
    if rule.waits:
        guard.check()
    if isinstance(result, StreamedResponse):
        return replace(result, chunks=site.guards.while_allowed(result.chunks, guard))
    return result
