"""The checks of `millpond doctor` about security: settings, certificates, files with secrets, stored users and tokens.

No result shows a secret."""

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millpond.cli.checks import CheckResult
from millpond.client.contexts import SECRETS, contexts_path, load_contexts
from millpond.model.addresses import INTERFACES, is_loopback, split_address
from millpond.model.errors import MillpondError
from millpond.model.urls import has_secret, redacted_url
from millpond.model.variables import PASSWORD_FILE_VARIABLE, TOKEN_FILE_VARIABLE
from millpond.setting_sources import read_file, with_current_names
from millpond.setting_types import SECRET, TLS_AT_PROXY, TLS_OFF

if TYPE_CHECKING:
    from millpond.catalog.security import SecurityRows
    from millpond.settings import Settings

DAY_S: Final = 86_400
EXPIRY_S_LOW: Final = 30 * DAY_S
SUPER_USERS_MANY: Final = 3
NAMED_MAX: Final = 3
"""Users or tokens that a result names."""
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
PLAIN: Final = "PLAIN"


def of_security(
    settings: "Settings", config: Path | None, environment: Mapping[str, str] = os.environ
) -> Iterator[CheckResult]:
    yield from _settings(settings)
    yield from _certificates(settings)
    yield from _files(settings, config)
    yield from _client_files(environment)
    if settings.security:
        yield from _stored(settings)


# -- settings -------------------------------------------------------------------------------------------------


def _settings(settings: "Settings") -> Iterator[CheckResult]:
    check = "security"
    weak = list(_weak_settings(settings))
    yield from (CheckResult(check, "warning", found, advice) for found, advice in weak)
    if not weak:
        found = "on" if settings.security else "off: only programs of this machine can connect"
        yield CheckResult(check, "ok", found)


def _weak_settings(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Each with a remedy."""
    beyond = _beyond_loopback(settings)
    if settings.insecure:
        effect = f"the broker listens on {', '.join(beyond)}" if beyond else "no listener needs it now"
        yield (
            f"insecure=true: {effect}",
            "remove it; `millpond security init` sets up users and TLS",
        )
    if settings.security and settings.tls == TLS_AT_PROXY:
        yield (
            "tls=proxy: the broker accepts passwords on plain connections",
            "make sure that only the proxy can connect to the broker, or set tls=on",
        )
    if settings.security and settings.tls == TLS_OFF and beyond:
        yield "tls=off on an address that other machines can reach: others can read the data", "set tls=on"
        if PLAIN in settings.sasl_mechanisms:
            yield "PLAIN is allowed without TLS", "remove PLAIN from sasl_mechanisms, or set tls=on"
    if settings.security and not settings.super_users:
        yield "there is no super user: no client can create users", "set super_users=User:admin"
    if len(settings.super_users) > SUPER_USERS_MANY:
        yield (
            f"{len(settings.super_users)} super users, which may do everything",
            "give them ACLs instead: `millpond acl create`",
        )


def _beyond_loopback(settings: "Settings") -> list[str]:
    listens = [settings.listens(interface) for interface in INTERFACES]
    return [each for each in listens if each and not is_loopback(split_address(each)[0])]


# -- certificates ---------------------------------------------------------------------------------------------


def _certificates(settings: "Settings") -> Iterator[CheckResult]:
    from millpond.security.certificates import expiries_in, load_files  # it loads `cryptography`
    from millpond.security.tls_files import InvalidCertificate

    advice = "replace the files of tls_certificate and tls_key; a running broker uses new ones within 10 s"
    try:
        files = settings.tls_files()
        if files is None:
            return
        loaded = load_files(files, int(time.time() * 1000))
        yield _expiry("certificate", loaded.expires_at_ms / 1000, advice)
        if loaded.contents.client_ca is not None:
            soonest = min(expiries_in(loaded.contents.client_ca))
            yield _expiry("client CA", soonest / 1000, "replace the file of tls_client_ca")
    except (InvalidCertificate, MillpondError) as error:
        yield CheckResult("certificate", "problem", str(error), advice)


def _expiry(check: str, expires_at_s: float, advice: str) -> CheckResult:
    remaining_s = expires_at_s - time.time()
    day = time.strftime("%Y-%m-%d", time.gmtime(expires_at_s))
    if remaining_s <= 0:
        return CheckResult(check, "problem", f"it expired on {day}", advice)
    if remaining_s < EXPIRY_S_LOW:
        return CheckResult(
            check, "warning", f"it expires in {remaining_s / DAY_S:.0f} days, on {day}", advice
        )
    return CheckResult(check, "ok", f"it expires on {day}")


# -- files ----------------------------------------------------------------------------------------------------


def _files(settings: "Settings", config: Path | None) -> Iterator[CheckResult]:
    if settings.tls_key:
        yield from _private("key file", Path(settings.tls_key))
    if config is not None and _has_secret(config):
        yield from _private("settings file", config.absolute())
    if settings.security and settings.uses_data_dir():
        yield from _private("data directory", settings.data_dir.absolute(), "700")


def _has_secret(config: Path) -> bool:
    """Whether the settings file has a secret, or a URL with one. Those in the environment are not in it."""
    from millpond.settings import kind_of  # it loads most of the broker

    values = with_current_names(read_file(config))
    catalog, storage = values.get("catalog", ""), values.get("storage", "")
    if redacted_url(catalog) != catalog or has_secret(storage):
        return True
    return any(text and kind_of(name) is SECRET for name, text in values.items())


def _client_files(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """The files that commands and clients of this user would read."""
    for variable in (PASSWORD_FILE_VARIABLE, TOKEN_FILE_VARIABLE):
        if environment.get(variable):
            yield from _private(variable, Path(environment[variable]))
    path = contexts_path(environment)
    mode = _mode(path)
    if mode is None:
        return
    if mode & OTHERS_WRITE:
        yield CheckResult("contexts", "problem", f"other users can change {path}", f"chmod 600 '{path}'")
    try:
        stored = load_contexts(path)
    except MillpondError as error:  # it also refuses a file with a password or a token
        yield CheckResult("contexts", "problem", str(error), "`millpond context set` writes a valid file")
        return
    found = [
        result
        for name, context in stored.contexts.items()
        for key in SECRETS.values()
        if (secret := getattr(context, key)) is not None
        for result in _private(f"context {name}", Path(secret))
    ]
    yield from (each for each in found if each.status != "ok")
    if not mode & OTHERS_WRITE and all(each.status == "ok" for each in found):
        yield CheckResult("contexts", "ok", f"{len(stored.contexts)} in {path}")


def _private(check: str, path: Path, wanted: str = "600") -> Iterator[CheckResult]:
    """Whether other users of this machine can open a file or directory. One that does not exist is not checked here."""
    mode = _mode(path)
    if mode is None:
        return
    if mode & OTHERS:
        found = f"other users can open {path} (mode {stat.S_IMODE(mode):03o})"
        yield CheckResult(check, "problem", found, f"chmod {wanted} '{path}'")
    else:
        yield CheckResult(check, "ok", f"only its owner can open {path}")


def _mode(path: Path) -> int | None:
    """None if it does not exist, or is a pipe or a device."""
    with contextlib.suppress(OSError):
        mode = path.stat().st_mode
        return mode if stat.S_ISREG(mode) or stat.S_ISDIR(mode) else None
    return None


# -- the catalog ----------------------------------------------------------------------------------------------


def _stored(settings: "Settings") -> Iterator[CheckResult]:
    """If the catalog can be read. Other checks say why it cannot."""
    from millpond.catalog import security
    from millpond.catalog.open import CATALOG_FILE
    from millpond.storage import open_database

    if not settings.catalog and not (settings.data_dir / CATALOG_FILE).exists():
        yield CheckResult(
            "users", "warning", "there is no catalog yet", "`millpond security init` creates admin"
        )
        return
    try:
        with contextlib.closing(open_database(settings)) as database, database.read() as transaction:
            rows = security.read(transaction)
    except MillpondError:
        return
    yield _users(settings, rows)
    yield _tokens(rows)


def _users(settings: "Settings", rows: "SecurityRows") -> CheckResult:
    users = {each.user for each in rows.credentials}
    if not users and not rows.tokens and not settings.oauth_issuer and not settings.tls_client_ca:
        advice = "`millpond security reset-admin` creates admin"
        return CheckResult("users", "warning", "there are no users, so no client can log in", advice)
    weak = sorted({each.user for each in rows.credentials if each.iterations < settings.password_iterations})
    if weak:
        found = f"{_named(weak)} with fewer than {settings.password_iterations} iterations"
        return CheckResult("users", "warning", found, "set their passwords again: `millpond user set NAME`")
    return CheckResult("users", "ok", f"{len(users)} with passwords")


def _tokens(rows: "SecurityRows") -> CheckResult:
    endless = [f"{each.id} ({each.principal})" for each in rows.tokens if each.expires_at_ms is None]
    if endless:
        advice = (
            "replace them by tokens with `--expires`: `millpond token create`, then `millpond token delete`"
        )
        return CheckResult("tokens", "warning", f"without an expiry: {_named(endless)}", advice)
    return CheckResult("tokens", "ok", f"{len(rows.tokens)}, all of which expire" if rows.tokens else "none")


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"
