"""Kafka's codes of the SCRAM mechanisms. Shared by the APIs 50 and 51."""

from collections.abc import Mapping
from typing import Final

from millpond.security.scram import SCRAM_SHA_256, SCRAM_SHA_512

CODES: Final[Mapping[str, int]] = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
MECHANISMS: Final[Mapping[int, str]] = {code: mechanism for mechanism, code in CODES.items()}
