"""Which names a proof may yield. The kind of principal is always `User`: `Broker` comes from no proof of a client."""

import re
from typing import Final

from millpond.model.errors import AuthenticationFailed, InvalidCredential
from millpond.model.principals import ANONYMOUS, USER, Principal

NAME_CHARS_MAX: Final = 1024
"""A certificate's whole subject can be a name."""
USER_CHARS_MAX: Final = 255
_RESERVED: Final = ("*", ANONYMOUS.name)
"""In an ACL, `User:*` is every user, and `User:ANONYMOUS` one that did not authenticate."""
_USER: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def user_principal(name: object) -> Principal:
    """The principal of a user that an issuer or a certificate names. Raises `AuthenticationFailed` if no user can have
    this name."""
    if not isinstance(name, str) or not is_name(name):
        raise AuthenticationFailed
    return Principal(USER, name)


def is_name(name: str) -> bool:
    """Whether any user can have this name."""
    return 0 < len(name) <= NAME_CHARS_MAX and name.isprintable() and name not in _RESERVED


def is_user_name(name: str) -> bool:
    """Whether a user with a password can have this name: printable ASCII, because clients do not agree on how to
    normalize other characters (RFC 4013), and no space at either end."""
    return len(name) <= USER_CHARS_MAX and name not in _RESERVED and _USER.fullmatch(name) is not None


def check_user_name(name: str) -> None:
    """Raises `InvalidCredential` if no user with a password can have this name."""
    if not is_user_name(name):
        reason = f"a user name has 1 to {USER_CHARS_MAX} printable ASCII characters, no space at either end"
        raise InvalidCredential(reason=f"{reason}, and is not one of {', '.join(_RESERVED)}")
