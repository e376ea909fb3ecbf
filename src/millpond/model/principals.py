"""Principals: who sends a request. Users prove their name. `Broker` is the kind of brokers of the same cluster, and no
proof of a user yields it."""

from typing import Final, NamedTuple, Self

USER: Final = "User"
BROKER: Final = "Broker"


class Principal(NamedTuple):
    """Written as `User:alice`."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError if the text is not of the form `kind:name`."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"{text!r} is not a principal: write it as User:name")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The sender of every request while security is off."""
