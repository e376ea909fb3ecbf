"""Who a client is and what it may do: authentication, authorization by ACLs, TLS. Interfaces only translate."""

from millpond.security.access import OPEN_ACCESS, Access
from millpond.security.identity import ANONYMOUS_IDENTITY, Identity
from millpond.security.rights import Rights
from millpond.security.view import SecurityView

__all__ = ["ANONYMOUS_IDENTITY", "OPEN_ACCESS", "Access", "Identity", "Rights", "SecurityView"]
