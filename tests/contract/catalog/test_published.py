"""Settings of brokers that jobs without a broker obey."""

import pytest

from millpond.catalog import published_settings
from millpond.catalog.published_settings import PREFIX, PublishedSettings


@pytest.fixture(autouse=True)
def nothing_published(catalog):
    with catalog.database.write() as tx:
        tx.rows("DELETE FROM meta WHERE name LIKE ?", (f"{PREFIX}%",))


def test_a_catalog_without_them_has_the_defaults(catalog):
    assert catalog.read(published_settings.read) == PublishedSettings(300_000, True, 1)


@pytest.mark.parametrize("settings", [PublishedSettings(), PublishedSettings(0, False, 7)])
def test_what_is_published_is_read(catalog, settings):
    catalog.write(published_settings.publish, settings)
    assert catalog.read(published_settings.read) == settings
    assert len(catalog.rows("SELECT name FROM meta WHERE name LIKE ?", f"{PREFIX}%")) == 3


def test_the_last_to_publish_wins(catalog):
    for settings in (PublishedSettings(1, False, 7), PublishedSettings(2, True, 8), PublishedSettings()):
        catalog.write(published_settings.publish, settings)
        assert catalog.read(published_settings.read) == settings


def test_nothing_else_in_the_catalog_changes(catalog):
    before = catalog.rows("SELECT name, value FROM meta ORDER BY name")
    catalog.write(published_settings.publish, PublishedSettings(0, False, 7))
    after = catalog.rows("SELECT name, value FROM meta WHERE name NOT LIKE ? ORDER BY name", f"{PREFIX}%")
    assert after == before
