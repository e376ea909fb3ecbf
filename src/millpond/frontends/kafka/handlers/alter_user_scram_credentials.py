"""AlterUserScramCredentials (51), v0: sets and deletes passwords, which the client has salted.

Each user has its own result. An empty or impossible name, and iterations outside of 4,096 to 16,384, get error 93; an
unknown mechanism 33; a user that is named twice, even with two mechanisms, 92; a deletion of what does not exist 91.
The rest is changed in one transaction. Only super users change super users (31). The connection must be encrypted or
stay on this machine (93), because a salted password is as good as a password. While security is off, the response is
error 54.
"""

from collections import Counter

from millpond.catalog.security import ScramCredential
from millpond.frontends.kafka.acl_codes import SECURITY_OFF
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import REFUSALS, KafkaError, KafkaRefusal, code_and_message
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import ALTER_CLUSTER
from millpond.frontends.kafka.scram_mechanisms import MECHANISMS
from millpond.model.errors import InvalidCredential, MillpondError
from millpond.protocol import ErrorCode
from millpond.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from millpond.security.scram import salted_credential

ScramChange = ScramCredentialDeletion | ScramCredentialUpsertion


@handles(AlterUserScramCredentialsRequest, rights=(ALTER_CLUSTER,))
async def alter_user_scram_credentials(
    call: KafkaCall, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    changes: list[ScramChange] = [*request.deletions, *request.upsertions]
    times = Counter(each.name for each in changes)
    try:
        _check_request(call)
        refusals, valid = _checked(call, changes, times)
        refusals |= await _apply(call, valid)
    except REFUSALS as error:
        refusals = dict.fromkeys(times, error)
    return AlterUserScramCredentialsResponse(results=[_result(user, refusals.get(user)) for user in times])


def _check_request(call: KafkaCall) -> None:
    if not call.services.security.enabled:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, SECURITY_OFF)
    call.require(ALTER_CLUSTER)
    if not call.authentication.is_private:
        raise InvalidCredential(reason="passwords can be changed only over TLS, or on the broker's machine")


def _checked(
    call: KafkaCall, changes: list[ScramChange], times: Counter[str]
) -> tuple[dict[str, KafkaRefusal], list[ScramCredential | tuple[str, str]]]:
    """The errors by user, and the changes without one: a credential to store, or user and mechanism to delete."""
    refusals: dict[str, KafkaRefusal] = {}
    valid: list[ScramCredential | tuple[str, str]] = []
    for change in changes:
        try:
            valid.append(_checked_change(call, change, is_repeated=times[change.name] > 1))
        except REFUSALS as error:
            refusals[change.name] = error
    return refusals, valid


def _checked_change(
    call: KafkaCall, change: ScramChange, *, is_repeated: bool
) -> ScramCredential | tuple[str, str]:
    if is_repeated:
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, f"User {change.name!r} is named more than once.")
    if not change.name:
        raise InvalidCredential(reason="the user name is empty")
    mechanism = MECHANISMS.get(change.mechanism)
    if mechanism is None:
        message = f"There is no SCRAM mechanism {change.mechanism}."
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message)
    call.services.security_administration.check_may_alter(call.access, change.name)
    if isinstance(change, ScramCredentialDeletion):
        return change.name, mechanism
    salt, salted_password = bytes(change.salt), bytes(change.salted_password)
    return salted_credential(change.name, mechanism, change.iterations, salt, salted_password)


async def _apply(call: KafkaCall, valid: list[ScramCredential | tuple[str, str]]) -> dict[str, KafkaRefusal]:
    put = [each for each in valid if isinstance(each, ScramCredential)]
    deleted = [(each[0], each[1]) for each in valid if not isinstance(each, ScramCredential)]
    if not valid:
        return {}
    administration = call.services.security_administration
    try:
        absent = await administration.alter_credentials(call.access, put, deleted)
    except MillpondError as error:
        return dict.fromkeys((*(each.user for each in put), *(user for user, _ in deleted)), error)
    return dict(absent)


def _result(user: str, refusal: KafkaRefusal | None) -> AlterUserScramCredentialsResult:
    if refusal is None:
        return AlterUserScramCredentialsResult(user=user)
    code, message = code_and_message(refusal)
    return AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
