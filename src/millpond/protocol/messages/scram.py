"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51): the passwords of users."""

from millpond.protocol.schema import (
    Bytes,
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
class DescribedScramUser(Struct):
    name: String


@request(key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Request):
    users: list[DescribedScramUser] | None


@struct
class ScramCredentialInfo(Struct):
    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    credential_infos: list[ScramCredentialInfo]


@response(to=DescribeUserScramCredentialsRequest)
class DescribeUserScramCredentialsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    results: list[DescribeUserScramCredentialsResult]


@struct
class ScramCredentialDeletion(Struct):
    name: String
    mechanism: Int8


@struct
class ScramCredentialUpsertion(Struct):
    name: String
    mechanism: Int8
    iterations: Int32
    salt: Bytes
    salted_password: Bytes


@request(key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Request):
    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


@struct
class AlterUserScramCredentialsResult(Struct):
    user: String
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


@response(to=AlterUserScramCredentialsRequest)
class AlterUserScramCredentialsResponse(Response):
    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterUserScramCredentialsResult]
