"""Creates the first administrator directly in the catalog: no broker needs to run, and none could authenticate its
caller. What may write to the catalog may do everything anyway."""

import contextlib
import os
import secrets
from typing import Final

from millpond.catalog import security
from millpond.model.errors import InvalidCredential
from millpond.security.scram import HASHES, ITERATIONS_MAX, new_credential
from millpond.settings import Settings
from millpond.storage import open_database

ADMIN: Final = "admin"
PASSWORD_BYTES: Final = 24


def create_admin(settings: Settings) -> str:
    """Create the user `admin` and return its password. Raises `InvalidCredential` if it exists."""
    return _set_password(settings, replace=False)


def reset_admin(settings: Settings) -> str:
    """Give the user `admin` a new password and return it."""
    return _set_password(settings, replace=True)


def _set_password(settings: Settings, *, replace: bool) -> str:
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    made = [new_credential(ADMIN, password, each, ITERATIONS_MAX, os.urandom) for each in HASHES]
    if not settings.catalog:
        settings.data_dir.mkdir(
            mode=0o700, parents=True, exist_ok=True
        )  # the catalog has the cluster's secret
    with contextlib.closing(open_database(settings)) as database:
        database.migrate()
        with database.write() as tx:
            if not replace and any(each.user == ADMIN for each in security.credentials(tx)):
                reason = f"user {ADMIN} exists; `millpond security reset-admin` gives it a new password"
                raise InvalidCredential(reason=reason)
            security.put_credentials(tx, made)
    return password
