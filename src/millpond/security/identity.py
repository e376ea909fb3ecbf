"""The result of a successful authentication: who the client is, by which credential, and until when."""

from typing import Final, NamedTuple

from millpond.catalog.security import ApiToken, ScramCredential
from millpond.model.principals import ANONYMOUS, USER, Principal

SCRAM: Final = "scram"
TOKEN: Final = "token"  # noqa: S105  # no secret


class Identity(NamedTuple):
    principal: Principal
    credential: str
    """The stored credential, as `scram:<mechanism>:<user>` or `token:<id>`; otherwise the kind of proof. Access ends
    when the stored credential is changed or deleted."""
    credential_version: int = 0
    expires_at_ms: int | None = None
    session: str = ""
    """The id of the session that proved it; access ends with the session, too."""

    def __repr__(self) -> str:
        return f"Identity(principal={str(self.principal)!r}, credential={self.credential!r})"


ANONYMOUS_IDENTITY: Final = Identity(ANONYMOUS, "")


def password_identity(credential: ScramCredential) -> Identity:
    """The identity of a client that knows the password of this credential."""
    name = f"{SCRAM}:{credential.mechanism}:{credential.user}"
    return Identity(Principal(USER, credential.user), name, credential.version)


def token_identity(token: ApiToken) -> Identity:
    return Identity(
        Principal.parse(token.principal), f"{TOKEN}:{token.id}", expires_at_ms=token.expires_at_ms
    )
