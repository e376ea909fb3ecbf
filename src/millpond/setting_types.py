"""The types of settings: how the text of a flag, a variable or a file becomes a value, and how it is shown again."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millpond.model.group_configs import MigrationPolicy
from millpond.model.principals import Principal
from millpond.model.units import format_bytes, format_duration, parse_bytes, parse_duration_ms
from millpond.observability.logs import FORMATS
from millpond.security.tls_files import CLIENT_AUTH

UNLIMITED: Final = "unlimited"
TLS_OFF: Final = "off"
TLS_ON: Final = "on"
TLS_AT_PROXY: Final = "proxy"
TLS_MODES: Final = (TLS_OFF, TLS_ON, TLS_AT_PROXY)
PORTS: Final = 65_536
HIDDEN: Final = "(hidden)"
"""Shown instead of a secret."""


@dataclass(frozen=True, slots=True)
class SettingType:
    """How a setting is parsed from text and converted back to text."""

    name: str
    parse: Callable[[str], Any]
    show: Callable[[Any], str] = str


def _parse_bool(text: str) -> bool:
    if text.lower() not in ("true", "false", "yes", "no", "1", "0", "on", "off"):
        raise ValueError("write true or false")
    return text.lower() in ("true", "yes", "1", "on")


def _parse_count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise ValueError("write a whole number") from None
    if number < 1:
        raise ValueError("write a number from 1 on")
    return number


def _or_unlimited(parse: Callable[[str], int]) -> Callable[[str], int]:
    return lambda text: -1 if text.lower() == UNLIMITED else parse(text)


def _show_or_unlimited(show: Callable[[int], str]) -> Callable[[int], str]:
    return lambda value: UNLIMITED if value == -1 else show(value)


def _from(minimum: int, parse: Callable[[str], int], show: Callable[[int], str]) -> Callable[[str], int]:
    def parse_checked(text: str) -> int:
        value = parse(text)
        if value < minimum:
            raise ValueError(f"it must be at least {show(minimum)}")
        return value

    return parse_checked


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse_choice(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"write {' or '.join(choices)}")
        return text.lower()

    return parse_choice


def _parse_tls(text: str) -> str:
    """Also true and false: programs of the client library read the same environment variable."""
    if text.lower() in ("true", "yes", "1"):
        return TLS_ON
    if text.lower() in ("false", "no", "0"):
        return TLS_OFF
    return _one_of(*TLS_MODES)(text)


def _parse_address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if text and not (colon and host and port.isdecimal() and int(port) < PORTS):
        raise ValueError("write it as host:port")
    return text


def _parse_list(separator: str, parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(parse(each.strip()) for each in text.split(separator) if each.strip())


def _show_list(separator: str) -> Callable[[tuple[Any, ...]], str]:
    return lambda values: separator.join(map(str, values))


TEXT = SettingType("text", str)
SECRET = SettingType("secret", str)
"""Not accepted as an option of a command, and not shown."""
PRINCIPALS = SettingType("principals", _parse_list(";", Principal.parse), _show_list(";"))
MECHANISMS = SettingType("mechanisms", _parse_list(",", str.upper), _show_list(","))
ADDRESS = SettingType("host:port", _parse_address)
LOG_FORMAT = SettingType(" or ".join(FORMATS), _one_of(*FORMATS))
FOLDER = SettingType("folder", Path)
FILE = SettingType("file", str)
TLS = SettingType(" or ".join(TLS_MODES), _parse_tls)
TLS_CLIENT_AUTH = SettingType(" or ".join(CLIENT_AUTH), _one_of(*CLIENT_AUTH))
MIGRATION_POLICY = SettingType(
    " or ".join(MigrationPolicy), lambda text: MigrationPolicy(_one_of(*MigrationPolicy)(text))
)
FLAG = SettingType("true or false", _parse_bool, lambda value: str(value).lower())
COUNT = SettingType("number", _parse_count)
COUNT_OR_UNLIMITED = SettingType("number", _from(0, int, str))
NODE_ID = SettingType("number", _from(0, int, str))
DURATION = SettingType("duration", parse_duration_ms, format_duration)
SIZE = SettingType("size", parse_bytes, format_bytes)
PAYLOAD_AGE = SettingType("duration", _from(60_000, parse_duration_ms, format_duration), format_duration)
LEASE = SettingType("duration", _from(1_000, parse_duration_ms, format_duration), format_duration)
BUFFER = SettingType("size", _from(1024, parse_bytes, format_bytes), format_bytes)
DURATION_OR_UNLIMITED = SettingType(
    "duration or unlimited", _or_unlimited(parse_duration_ms), _show_or_unlimited(format_duration)
)
SIZE_OR_UNLIMITED = SettingType(
    "size or unlimited", _or_unlimited(parse_bytes), _show_or_unlimited(format_bytes)
)
