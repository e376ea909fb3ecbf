"""Users, API tokens, ACLs and quotas: list, create, alter, delete."""

from itertools import groupby

from msgspec import UNSET, convert, structs

from millpond.catalog.security import ApiToken
from millpond.frontends.web.operations import NO_BODY, HttpCall, NoParameters, json_body, operation
from millpond.frontends.web.rights import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
)
from millpond.frontends.web.schemas import RequestStruct
from millpond.frontends.web.security_schemas import (
    AclFilterQuery,
    AclJson,
    AclsJson,
    CreatedTokenJson,
    CredentialJson,
    EndedSessionsJson,
    ListedAclsJson,
    NewTokenJson,
    PasswordJson,
    QuotaAlterationJson,
    QuotaAlterationsJson,
    QuotaJson,
    QuotasJson,
    TokenJson,
    TokensJson,
    UserJson,
    UsersJson,
)
from millpond.model.acl_texts import acl_of, filter_of, selects_all, text_of
from millpond.model.acls import Acl, AclFilter
from millpond.model.errors import InvalidRequest
from millpond.model.quotas import QuotaEntity
from millpond.security.requirements import needs


class UserPath(RequestStruct, frozen=True):
    user: str


class TokenPath(RequestStruct, frozen=True):
    token: str


# -- users ----------------------------------------------------------------------------------------------------


@operation(
    "GET",
    "/security/users",
    rights=needs(DESCRIBE_CLUSTER),
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: UsersJson},
)
async def list_users(call: HttpCall[NoParameters, NoParameters, None]) -> UsersJson:
    """List the users that have a password, by name, with the mechanisms for which it is stored."""
    found = call.site.services.security.list_credentials(call.access)
    return UsersJson(
        [
            UserJson(user, [CredentialJson(each.mechanism, each.iterations) for each in credentials])
            for user, credentials in groupby(found, lambda each: each.user)
        ]
    )


@operation(
    "PUT",
    "/security/users/{user}",
    rights=needs(ALTER_CLUSTER),
    parameters=UserPath,
    query=NoParameters,
    body=json_body(PasswordJson),
    returns={204: None},
)
async def put_user(call: HttpCall[UserPath, NoParameters, PasswordJson]) -> None:
    """Create a user, or replace its password. Connections that used the old password are closed."""
    await call.site.services.security.set_password(call.access, call.path.user, call.body.password)


@operation(
    "DELETE",
    "/security/users/{user}",
    rights=needs(ALTER_CLUSTER),
    parameters=UserPath,
    query=NoParameters,
    body=NO_BODY,
    returns={204: None},
    error_statuses=(404,),
)
async def delete_user(call: HttpCall[UserPath, NoParameters, None]) -> None:
    """Delete the password of a user. Its tokens and ACLs are kept."""
    await call.site.services.security.delete_user(call.access, call.path.user)


@operation(
    "DELETE",
    "/security/users/{user}/sessions",
    rights=needs(ALTER_CLUSTER),
    parameters=UserPath,
    query=NoParameters,
    body=NO_BODY,
    returns={200: EndedSessionsJson},
)
async def end_sessions(call: HttpCall[UserPath, NoParameters, None]) -> EndedSessionsJson:
    """End the browser sessions of a user, also of one who logs in at an identity provider."""
    return EndedSessionsJson(await call.site.services.security.end_sessions(call.access, call.path.user))


# -- tokens ---------------------------------------------------------------------------------------------------


@operation(
    "GET",
    "/security/tokens",
    rights=needs(DESCRIBE_CLUSTER),
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: TokensJson},
)
async def list_tokens(call: HttpCall[NoParameters, NoParameters, None]) -> TokensJson:
    """List the API tokens, by id. Their texts are not stored."""
    return TokensJson([_token(each) for each in call.site.services.security.list_tokens(call.access)])


@operation(
    "POST",
    "/security/tokens",
    rights=needs(ALTER_CLUSTER),
    parameters=NoParameters,
    query=NoParameters,
    body=json_body(NewTokenJson),
    returns={200: CreatedTokenJson},
)
async def create_token(call: HttpCall[NoParameters, NoParameters, NewTokenJson]) -> CreatedTokenJson:
    """Create an API token for a user. The response is the only place that shows its text."""
    new = call.body
    made = await call.site.services.security.create_token(
        call.access,
        new.principal,
        expires_at_ms=None if new.expires_at_ms is UNSET else new.expires_at_ms,
        description=new.description,
    )
    return CreatedTokenJson(made.stored.id, made.text)


@operation(
    "DELETE",
    "/security/tokens/{token}",
    rights=needs(ALTER_CLUSTER),
    parameters=TokenPath,
    query=NoParameters,
    body=NO_BODY,
    returns={204: None},
    error_statuses=(404,),
)
async def delete_token(call: HttpCall[TokenPath, NoParameters, None]) -> None:
    """Delete an API token by its id. Connections that use it are closed, and streams end."""
    await call.site.services.security.delete_token(call.access, call.path.token)


# -- ACLs -----------------------------------------------------------------------------------------------------


@operation(
    "GET",
    "/security/acls",
    rights=needs(DESCRIBE_CLUSTER),
    parameters=NoParameters,
    query=AclFilterQuery,
    body=NO_BODY,
    returns={200: ListedAclsJson},
)
async def list_acls(call: HttpCall[NoParameters, AclFilterQuery, None]) -> ListedAclsJson:
    """List the ACLs that the query selects; without parameters all of them."""
    found = call.site.services.security.list_acls(call.access, _filter(call.query))
    return ListedAclsJson([_acl(each) for each in found])


@operation(
    "POST",
    "/security/acls",
    rights=needs(ALTER_CLUSTER),
    parameters=NoParameters,
    query=NoParameters,
    body=json_body(AclsJson),
    returns={204: None},
)
async def create_acls(call: HttpCall[NoParameters, NoParameters, AclsJson]) -> None:
    """Create ACLs, all or none. One that exists is kept."""
    acls = [acl_of(each.to_text()) for each in call.body.acls]
    await call.site.services.security.create_acls(call.access, acls)


@operation(
    "DELETE",
    "/security/acls",
    rights=needs(ALTER_CLUSTER),
    parameters=NoParameters,
    query=AclFilterQuery,
    body=NO_BODY,
    returns={200: ListedAclsJson},
)
async def delete_acls(call: HttpCall[NoParameters, AclFilterQuery, None]) -> ListedAclsJson:
    """Delete the ACLs that the query selects, and return them. A query that selects all ACLs is refused."""
    selection = _filter(call.query)
    if selects_all(selection):
        raise InvalidRequest(reason="the query would delete all ACLs; select some of them")
    [deleted] = await call.site.services.security.delete_acls(call.access, [selection])
    return ListedAclsJson([_acl(each) for each in deleted])


# -- quotas ---------------------------------------------------------------------------------------------------


@operation(
    "GET",
    "/security/quotas",
    rights=needs(DESCRIBE_CLUSTER_CONFIGS),
    parameters=NoParameters,
    query=NoParameters,
    body=NO_BODY,
    returns={200: QuotasJson},
)
async def list_quotas(call: HttpCall[NoParameters, NoParameters, None]) -> QuotasJson:
    """List the quotas, one entry for each user, client id, address or topic that has any."""
    found = call.site.services.security.list_quotas(call.access)
    return QuotasJson(
        [
            QuotaJson({each.key: each.value for each in quotas}, **_named(entity))
            for entity, quotas in groupby(found, lambda each: each.entity)
        ]
    )


@operation(
    "PATCH",
    "/security/quotas",
    rights=needs(ALTER_CLUSTER_CONFIGS),
    parameters=NoParameters,
    query=NoParameters,
    body=json_body(QuotaAlterationsJson),
    returns={204: None},
)
async def alter_quotas(call: HttpCall[NoParameters, NoParameters, QuotaAlterationsJson]) -> None:
    """Set and remove quotas, all or none. A client beyond its quota is served, and its next request is refused with
    status 429 until its average is within the quota again."""
    alterations = [(_entity(each), each.values) for each in call.body.alterations]
    await call.site.services.security.alter_quotas(
        call.access, alterations, validate_only=call.body.validate_only
    )


def _token(stored: ApiToken) -> TokenJson:
    return TokenJson(
        id=stored.id,
        principal=stored.principal,
        created_at_ms=stored.created_at_ms,
        created_by=stored.created_by,
        expires_at_ms=UNSET if stored.expires_at_ms is None else stored.expires_at_ms,
        description=stored.description,
    )


def _acl(acl: Acl) -> AclJson:
    return convert(text_of(acl)._asdict(), AclJson)


def _filter(query: AclFilterQuery) -> AclFilter:
    return filter_of({name: value for name, value in structs.asdict(query).items() if value is not UNSET})


def _named(entity: QuotaEntity) -> dict[str, str]:
    return {name: value for name, value in entity._asdict().items() if value is not None}


def _entity(given: QuotaAlterationJson) -> QuotaEntity:
    names = (given.user, given.client_id, given.ip, given.topic)
    return QuotaEntity(*(None if name is UNSET else name for name in names))
