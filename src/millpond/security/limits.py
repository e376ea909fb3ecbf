"""Limits of credentials, in a module that needs no other package."""

from typing import Final

TOKEN_BYTES_MAX: Final = 16 * 1024
"""Size of a JWT, compared before it is parsed."""
