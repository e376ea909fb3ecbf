"""DescribeUserScramCredentials (50), v0: lists the users that have a password, with mechanism and iterations of each.

Null or no users request all of them. A user that is named twice gets error 92, one without a password 91. While
security is off, the response is error 54.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from millpond.frontends.kafka.acl_codes import SECURITY_OFF
from millpond.frontends.kafka.call import KafkaCall
from millpond.frontends.kafka.errors import code_of
from millpond.frontends.kafka.registry import handles
from millpond.frontends.kafka.rights import DESCRIBE_CLUSTER
from millpond.frontends.kafka.scram_mechanisms import CODES
from millpond.model.errors import MillpondError
from millpond.protocol import ErrorCode
from millpond.protocol.messages.scram import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
)
from millpond.service import UserMechanism

CredentialInfos = Mapping[str, list[ScramCredentialInfo]]


@handles(DescribeUserScramCredentialsRequest, rights=(DESCRIBE_CLUSTER,))
async def describe_user_scram_credentials(
    call: KafkaCall, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if not call.services.security.enabled:
        return _refused(ErrorCode.SECURITY_DISABLED, SECURITY_OFF)
    try:
        stored = _by_user(call.services.security_administration.list_credentials(call.access))
    except MillpondError as error:
        return _refused(code_of(error), str(error))
    times = Counter(each.name for each in request.users or ()) or dict.fromkeys(stored, 1)
    return DescribeUserScramCredentialsResponse(
        results=[_result(stored, user, is_repeated=count > 1) for user, count in times.items()]
    )


def _refused(code: ErrorCode, message: str) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=code, error_message=message, results=[])


def _by_user(credentials: Iterable[UserMechanism]) -> CredentialInfos:
    found = defaultdict(list)
    for user, mechanism, iterations in credentials:
        found[user].append(ScramCredentialInfo(mechanism=CODES[mechanism], iterations=iterations))
    return found


def _result(stored: CredentialInfos, user: str, *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    if is_repeated:
        code, message = ErrorCode.DUPLICATE_RESOURCE, f"User {user!r} is named more than once."
    elif user not in stored:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, f"There is no user {user!r} with a password."
    else:
        return DescribeUserScramCredentialsResult(user=user, credential_infos=stored[user])
    return DescribeUserScramCredentialsResult(
        user=user, error_code=code, error_message=message, credential_infos=[]
    )
