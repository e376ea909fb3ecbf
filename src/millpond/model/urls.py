"""URLs of catalogs and stores, for messages: without the secrets that they may contain."""

import re
from typing import Final

PATHS: Final = ("sqlite://", "file://")
"""What follows is a path, regardless of the characters in it."""
REDACTED: Final = "…"
_SECRET: Final = re.compile(
    r"://[^/@]*:[^@]+@|\b\w*(password|secret|token|passwd)\w*\s*=\s*[^&\s]", re.IGNORECASE
)
"""A password after a user, or a parameter whose name says that it is a secret."""


def redacted_url(url: str) -> str:
    """The URL without the user, password and parameters it may contain. If these cannot be identified with
    certainty, the part in question is hidden as a whole."""
    if url.startswith(PATHS):
        return url
    scheme, separator, rest = url.partition("://")
    if not separator:
        return REDACTED if "=" in url else url  # `password=…` is how libpq writes it without a URL
    rest, _, parameters = rest.partition("?")
    if "@" in parameters:
        return f"{scheme}://{REDACTED}"  # the @ may follow a password that contains a question mark
    return f"{scheme}://{rest.rpartition('@')[2].partition('#')[0]}"


def has_secret(url: str) -> bool:
    """Whether the URL contains a password or another secret."""
    return not url.startswith(PATHS) and _SECRET.search(url) is not None
