"""The methods of the `Admin` service for users, API tokens, ACLs and quotas."""

from itertools import groupby
from typing import Final

from millpond.catalog.security import ApiToken
from millpond.frontends.rpc.context import Context
from millpond.frontends.rpc.guarding import guarded
from millpond.frontends.rpc.rights import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
)
from millpond.model.acl_texts import AclText, acl_of, filter_of, selects_all, text_of
from millpond.model.acls import Acl, AclFilter
from millpond.model.errors import InvalidRequest
from millpond.model.quotas import QuotaChanges, QuotaEntity
from millpond.service import SecurityAdministration
from millpond.stubs import admin_pb2 as pb

ACLS_PER_REQUEST_MAX: Final = 1_000
QUOTAS_PER_REQUEST_MAX: Final = 1_000


class SecurityMethods:
    """`AdminService` inherits them."""

    def __init__(self, security: SecurityAdministration) -> None:
        self._security = security

    # -- users --------------------------------------------------------------------------------------------------

    @guarded(DESCRIBE_CLUSTER)
    async def list_users(self, _: pb.ListUsersRequest, context: Context) -> pb.ListUsersResponse:
        found = self._security.list_credentials(context.access)
        return pb.ListUsersResponse(
            users=[
                pb.User(
                    name=user,
                    credentials=[
                        pb.Credential(mechanism=each.mechanism, iterations=each.iterations)
                        for each in credentials
                    ],
                )
                for user, credentials in groupby(found, lambda each: each.user)
            ]
        )

    @guarded(ALTER_CLUSTER)
    async def put_user(self, request: pb.PutUserRequest, context: Context) -> pb.PutUserResponse:
        await self._security.set_password(context.access, request.name, request.password)
        return pb.PutUserResponse()

    @guarded(ALTER_CLUSTER)
    async def delete_user(self, request: pb.DeleteUserRequest, context: Context) -> pb.DeleteUserResponse:
        await self._security.delete_user(context.access, request.name)
        return pb.DeleteUserResponse()

    # -- tokens -------------------------------------------------------------------------------------------------

    @guarded(DESCRIBE_CLUSTER)
    async def list_tokens(self, _: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        found = self._security.list_tokens(context.access)
        return pb.ListTokensResponse(tokens=[_token(each) for each in found])

    @guarded(ALTER_CLUSTER)
    async def create_token(self, request: pb.CreateTokenRequest, context: Context) -> pb.CreateTokenResponse:
        made = await self._security.create_token(
            context.access,
            request.principal,
            expires_at_ms=request.expires_at_ms if request.HasField("expires_at_ms") else None,
            description=request.description,
        )
        return pb.CreateTokenResponse(id=made.stored.id, token=made.text)

    @guarded(ALTER_CLUSTER)
    async def delete_token(self, request: pb.DeleteTokenRequest, context: Context) -> pb.DeleteTokenResponse:
        await self._security.delete_token(context.access, request.id)
        return pb.DeleteTokenResponse()

    # -- ACLs ---------------------------------------------------------------------------------------------------

    @guarded(DESCRIBE_CLUSTER)
    async def list_acls(self, request: pb.ListAclsRequest, context: Context) -> pb.ListAclsResponse:
        found = self._security.list_acls(context.access, _filter(request.filter))
        return pb.ListAclsResponse(acls=[_message(each) for each in found])

    @guarded(ALTER_CLUSTER)
    async def create_acls(self, request: pb.CreateAclsRequest, context: Context) -> pb.CreateAclsResponse:
        count = len(request.acls)
        if not 1 <= count <= ACLS_PER_REQUEST_MAX:
            raise InvalidRequest(reason=f"{count} ACLs where 1 to {ACLS_PER_REQUEST_MAX} are allowed")
        await self._security.create_acls(context.access, [_acl(each) for each in request.acls])
        return pb.CreateAclsResponse()

    @guarded(ALTER_CLUSTER)
    async def delete_acls(self, request: pb.DeleteAclsRequest, context: Context) -> pb.DeleteAclsResponse:
        selection = _filter(request.filter)
        if selects_all(selection):
            raise InvalidRequest(reason="the filter would delete all ACLs; select some of them")
        [deleted] = await self._security.delete_acls(context.access, [selection])
        return pb.DeleteAclsResponse(acls=[_message(each) for each in deleted])

    # -- quotas -------------------------------------------------------------------------------------------------

    @guarded(DESCRIBE_CLUSTER_CONFIGS)
    async def list_quotas(self, _: pb.ListQuotasRequest, context: Context) -> pb.ListQuotasResponse:
        found = self._security.list_quotas(context.access)
        return pb.ListQuotasResponse(
            quotas=[
                pb.Quota(
                    entity=pb.QuotaEntity(**entity._asdict()),
                    values={each.key: each.value for each in quotas},
                )
                for entity, quotas in groupby(found, lambda each: each.entity)
            ]
        )

    @guarded(ALTER_CLUSTER_CONFIGS)
    async def alter_quotas(self, request: pb.AlterQuotasRequest, context: Context) -> pb.AlterQuotasResponse:
        count = len(request.alterations)
        if not 1 <= count <= QUOTAS_PER_REQUEST_MAX:
            raise InvalidRequest(
                reason=f"{count} alterations where 1 to {QUOTAS_PER_REQUEST_MAX} are allowed"
            )
        alterations = [(_entity(each.entity), _changes(each)) for each in request.alterations]
        await self._security.alter_quotas(context.access, alterations, validate_only=request.validate_only)
        return pb.AlterQuotasResponse()


def _token(stored: ApiToken) -> pb.Token:
    return pb.Token(
        id=stored.id,
        principal=stored.principal,
        created_at_ms=stored.created_at_ms,
        created_by=stored.created_by,
        expires_at_ms=stored.expires_at_ms,
        description=stored.description,
    )


def _acl(message: pb.Acl) -> Acl:
    """Empty fields have the defaults of `AclText`."""
    given = {name: value for name in AclText._fields if (value := getattr(message, name))}
    return acl_of(AclText(**{"resource_type": "", "name": "", "principal": "", "operation": "", **given}))


def _filter(message: pb.Acl) -> AclFilter:
    return filter_of({name: getattr(message, name) for name in AclText._fields})


def _message(acl: Acl) -> pb.Acl:
    return pb.Acl(**text_of(acl)._asdict())


def _entity(message: pb.QuotaEntity) -> QuotaEntity:
    named = {name: getattr(message, name) if message.HasField(name) else None for name in QuotaEntity._fields}
    return QuotaEntity(**named)


def _changes(alteration: pb.QuotaAlteration) -> QuotaChanges:
    changes: dict[str, float | None] = {**dict(alteration.set), **dict.fromkeys(alteration.remove)}
    if not changes or len(changes) < len(alteration.set) + len(alteration.remove):
        raise InvalidRequest(reason="each alteration sets or removes quotas, and names each of them once")
    return changes
