"""Durations and sizes as users write them: `250ms`, `10s`, `1h30m`, `7d`; `512`, `16KiB`, `8MiB`."""

import re
from typing import Final

MILLISECONDS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
BYTES: Final = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
                "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip

_DURATION_PART: Final = r"(\d+(?:\.\d+)?)(ms|s|m|h|d)"
_DURATION: Final = re.compile(f"(?:{_DURATION_PART})+")
_SIZE: Final = re.compile(r"(\d+)\s*([KMGT]i?B|B|)")


def parse_duration_ms(text: str) -> int:
    """Raises ValueError with a sentence that describes the expected form."""
    if not _DURATION.fullmatch(text.strip()):
        raise ValueError("write a duration such as 250ms, 10s, 1h30m or 7d")
    parts: list[tuple[str, str]] = re.findall(_DURATION_PART, text)
    return int(sum(float(number) * MILLISECONDS[unit] for number, unit in parts))


def parse_bytes(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("write a size such as 1048588, 16KiB or 8MiB")
    return int(match[1]) * BYTES[match[2]]


def format_duration(milliseconds: int) -> str:
    for unit in ("d", "h", "m", "s"):
        if milliseconds and milliseconds % MILLISECONDS[unit] == 0:
            return f"{milliseconds // MILLISECONDS[unit]}{unit}"
    return f"{milliseconds}ms"


def format_bytes(size: int) -> str:
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % BYTES[unit] == 0:
            return f"{size // BYTES[unit]}{unit}"
    return str(size)
