"""Who sends a gRPC call, and what it may do.

Each method of a service declares its rule with `guarded`, and `binding.py` applies it.
"""

import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from millpond.frontends.rpc.context import GrpcContext, host_of
from millpond.security.gate import ClientProof, Gate
from millpond.security.guards import Guard, Guards
from millpond.security.requirements import Requirement, Rule, needs
from millpond.security.throttling import QuotaPacer

INTERFACE: Final = "grpc"
_RULE: Final = "millpond_rule"
AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])


def guarded(
    *rights: Requirement | Rule, waits: bool = False, per_request: bool = False, counts: str | None = None
) -> Callable[[AnyMethod], AnyMethod]:
    """Declare the rule of a method: `AUTHENTICATED`, `PUBLIC`, or the rights that it needs. See `Rule`."""
    [first, *_] = rights
    if isinstance(first, Rule):
        rule = first
    else:
        requirements = [each for each in rights if not isinstance(each, Rule)]
        rule = needs(*requirements, waits=waits, per_request=per_request, counts=counts)

    def declare(method: AnyMethod) -> AnyMethod:
        setattr(method, _RULE, rule)
        return method

    return declare


def rule_of(method: Callable[..., Any]) -> Rule:
    """Raises TypeError for a method without a rule: it could be called by everyone."""
    rule = getattr(method, _RULE, None)
    if rule is None:
        raise TypeError(f"{method.__qualname__} does not declare the rights that it needs")
    assert isinstance(rule, Rule), "only `guarded` sets it"
    return rule


class CallGuards:
    """Creates the guards of calls, watches those of streams, and slows streams down to the quotas of their clients."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.streams = Guards()
        self.pacer = QuotaPacer()

    async def guard(self, context: GrpcContext, rule: Rule) -> Guard | None:
        """Authenticates the client. None if there is nothing to check: security is off, or the method is public."""
        if rule.is_public or not self._gate.enabled:
            return None
        return Guard(await self._gate.admit(_proof_of(context)), rule, read_field)


class CheckedRequests:
    """The requests of a stream. `anext` raises `NotAuthorized` for a request that its client may not send, and then
    continues with the next request. A handler that does not expect the error ends its stream with it."""

    def __init__(self, requests: AsyncIterator[Any], guard: Guard) -> None:
        self._requests = requests
        self._guard = guard

    def __aiter__(self) -> "CheckedRequests":
        return self

    async def __anext__(self) -> Any:
        request = await anext(self._requests)
        self._guard.require(request)
        return request


def read_field(owner: Any, name: str) -> Any:
    """A field of a message, or the value of a key in a map. None if the message in the field is absent."""
    if not hasattr(owner, "DESCRIPTOR"):
        return owner.get(name)
    field = owner.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and not field.is_repeated and not owner.HasField(name):
        return None
    return getattr(owner, name)


def _proof_of(context: GrpcContext) -> ClientProof:
    metadata = context.invocation_metadata() or ()
    security = context.auth_context()
    certificates = list(security.get("x509_pem_cert", ()))
    return ClientProof(
        interface=INTERFACE,
        host=host_of(context.peer()),
        authorization=[str(value) for name, value in metadata if name == "authorization"],
        certificate=ssl.PEM_cert_to_DER_cert(_text(certificates[0])) if certificates else None,
        encrypted=[_text(each) for each in security.get("transport_security_type", ())] == ["ssl"],
    )


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
