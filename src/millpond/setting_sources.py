"""Where the text of settings comes from: files, and names that settings had before."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from millpond.model.errors import InvalidSettings
from millpond.model.urls import redacted_url

RENAMED: Final[Mapping[str, str]] = {"store": "storage"}
"""The current name of each setting that had another one. Flags, environment and file may still use the former
name."""


class RenamedSetting(NamedTuple):
    """A setting that was given under its former name."""

    old: str
    new: str
    source: str
    """Where it was given: `--set`, the environment variable, or the path of the file."""


def with_current_names(given: Mapping[str, str]) -> dict[str, str]:
    """The values of one source under their current names. Both names with different values are refused: the broker
    must not guess which data it opens. An empty value is as good as none."""
    current = {name: text for name, text in given.items() if name not in RENAMED}
    for old, new in RENAMED.items():
        if old not in given:
            continue
        former = given[old]
        if former and current.get(new) not in (None, "", former):
            reason = f"`{new}` is set too, to another value; remove `{old}`"
            raise InvalidSettings(name=old, value=redacted_url(former), reason=reason)
        current[new] = current.get(new) or former
    return current


def read_file(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        content = tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidSettings(name="--config", value=str(file), reason=error.strerror) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(name="--config", value=str(file), reason=f"it is not TOML: {error}") from error
    return {name: str(value) for name, value in content.items()}
