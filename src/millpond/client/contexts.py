"""Named contexts: where a cluster is and how to prove who you are to it, in `~/.config/millpond/contexts.toml`.

The file holds no secrets, only the paths of the files that do. `millpond context` writes it; you may also edit it. A
relative path in it begins at the folder of the file.
"""

import json
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from millpond.client import arguments
from millpond.client.secret_files import check_private
from millpond.model.errors import InvalidArgument

FOLDER_VARIABLE: Final = "XDG_CONFIG_HOME"
FILE: Final = "millpond/contexts.toml"
HEADING: Final = (
    "# Written by `millpond context`, which keeps no comments. Secrets are in the files that it names.\n"
)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NAME_FORM: Final = (
    "a name of 1 to 100 of a-z, A-Z, 0-9, '.', '_' and '-', which begins with a letter or digit"
)
SECRETS: Final = {"password": "password_file", "token": "token_file"}
"""Keys that the file must not have, and those to use instead."""
PATHS: Final = ("ca", "certificate", "key", "password_file", "token_file")


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """How to connect to one cluster. None is not set."""

    address: str | None = None
    tls: bool | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None
    username: str | None = None
    password_file: str | None = None
    token_file: str | None = None

    def facts(self) -> dict[str, str | bool]:
        """The values that are set, by name."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in named.items() if value is not None}


FIELDS: Final = tuple(each.name for each in fields(ConnectionContext))


@dataclass(frozen=True, slots=True)
class StoredContexts:
    """The content of the file. `current` is the context that commands use unless another one is named."""

    current: str | None = None
    contexts: Mapping[str, ConnectionContext] = field(default_factory=dict)


def contexts_path(environment: Mapping[str, str]) -> Path:
    folder = environment.get(FOLDER_VARIABLE, "")
    return (Path(folder) if Path(folder).is_absolute() else Path.home() / ".config") / FILE


def find_context(path: Path, name: str, source: str) -> ConnectionContext:
    """The context of this name; `source` is the variable or option that names it."""
    found = load_contexts(path).contexts.get(name)
    if found is None:
        expected = f"a context of {path}; `millpond context list` shows them"
        raise arguments.out_of_range(source, name, expected)
    for key in SECRETS.values():
        if (secret_file := getattr(found, key)) is not None:
            check_private(f"{key} of context {name!r}", Path(secret_file))
    return found


# -- reading -----------------------------------------------------------------------------------------------------------


def load_contexts(path: Path) -> StoredContexts:
    """Without a file there are no contexts."""
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return StoredContexts()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _refused(path, f"it cannot be read ({error})") from error
    current, named = content.pop("current", None), content.pop("contexts", {})
    if content:
        raise _refused(path, f"{next(iter(content))!r} is unknown; expected 'current' and [contexts.NAME]")
    if not isinstance(named, dict) or not isinstance(current, str | None):
        raise _refused(path, "'current' must be a name, and 'contexts' a table")
    return StoredContexts(current, {name: _context(path, name, values) for name, values in named.items()})


def _context(path: Path, name: str, values: Any) -> ConnectionContext:
    if not NAME.fullmatch(name) or not isinstance(values, dict):
        raise _refused(path, f"{name!r}: expected {NAME_FORM}")
    for key, value in values.items():
        if key in SECRETS:
            reason = f"context {name!r} holds a {key}. Move it to a file, and set {SECRETS[key]} to its path"
            raise _refused(path, reason)
        if key not in FIELDS:
            raise _refused(path, f"context {name!r}: {key!r} is unknown; expected one of {', '.join(FIELDS)}")
        if not isinstance(value, bool if key == "tls" else str):
            kind = "true or false" if key == "tls" else "text"
            raise _refused(path, f"context {name!r}: {key!r} must be {kind}")
    absolute = {key: str(path.parent / Path(values[key]).expanduser()) for key in PATHS if key in values}
    return ConnectionContext(**values | absolute)


def _refused(path: Path, reason: str) -> InvalidArgument:
    return InvalidArgument(
        f"The file of contexts, {path}, is not valid: {reason}.",
        argument="context",
        value=str(path),
        expected="a valid file",
    )


# -- writing -----------------------------------------------------------------------------------------------------------


def save_contexts(path: Path, stored: StoredContexts) -> None:
    """Replace the file. Only this user can open it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")  # with mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(_text(stored))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _text(stored: StoredContexts) -> str:
    lines = [] if stored.current is None else [f"current = {_literal(stored.current)}"]
    for name, context in stored.contexts.items():
        lines += ["", f"[contexts.{_literal(name)}]"]
        lines += [f"{key} = {_literal(value)}" for key, value in context.facts().items()]
    return "\n".join([HEADING, *lines, ""])


def _literal(value: str | bool) -> str:
    """JSON's form of text and truth is also TOML's, but for the character DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
