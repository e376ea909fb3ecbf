"""The administrator in a real catalog: its password works, is replaced on request, and is never overwritten."""

import asyncio
import stat

import pytest

from millpond.catalog import security
from millpond.cli.admin_user import create_admin, reset_admin
from millpond.model.clock import SystemClock
from millpond.model.errors import AuthenticationFailed, InvalidCredential
from millpond.security import SecurityView
from millpond.security.authenticator import AuthenticationSettings, Authenticator
from millpond.settings import Settings
from millpond.storage import open_database


@pytest.fixture
def settings(tmp_path):
    return Settings(data_dir=tmp_path / "new" / "data")


async def log_in(settings, password):
    database = open_database(settings)

    async def read(function):
        with database.read() as tx:
            return function(tx)

    async def here(function):
        return function()

    view = SecurityView(read, enabled=True, clock=SystemClock())
    try:
        await view.refresh()
        authenticator = Authenticator(
            view, clock=SystemClock(), settings=AuthenticationSettings(), off_loop=here
        )
        return await authenticator.password("admin", password)
    finally:
        database.close()


def test_the_password_works(settings):
    password = create_admin(settings)
    assert str(asyncio.run(log_in(settings, password)).principal) == "User:admin"


def test_an_existing_administrator_is_not_overwritten(settings):
    password = create_admin(settings)
    with pytest.raises(InvalidCredential, match="reset-admin"):
        create_admin(settings)
    assert asyncio.run(log_in(settings, password))


def test_a_reset_replaces_the_password(settings):
    old, new = create_admin(settings), reset_admin(settings)
    assert asyncio.run(log_in(settings, new))
    with pytest.raises(AuthenticationFailed):
        asyncio.run(log_in(settings, old))


def test_the_catalog_has_no_password(settings):
    password = create_admin(settings)
    database = open_database(settings)
    with database.read() as tx:
        stored = b"".join(each.salt + each.stored_key + each.server_key for each in security.credentials(tx))
    database.close()
    assert password.encode() not in stored


def test_other_users_of_the_machine_cannot_read_the_catalog(settings):
    create_admin(settings)
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
