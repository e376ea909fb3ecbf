"""From a URL to a catalog, and what of that URL may be shown."""

import logging

import pytest

from millpond.catalog.open import open_database
from millpond.model.errors import InvalidSettings


@pytest.mark.parametrize(
    "url", ["mysql://u:p@s3cret@h/db", "mysql://h/db?password=s3cret", "password=s3cret"]
)
def test_an_engine_that_is_not_there_is_refused_without_its_secrets(url: str):
    with pytest.raises(InvalidSettings, match="neither memory:// nor") as caught:
        open_database(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:s3cret%zz@localhost:1/db",
        "postgresql://u:s3cret@localhost:1/db?nope=1",
        "postgresql://u:s3cret@[localhost/db",
    ],
)
def test_an_address_that_cannot_be_parsed_is_refused_at_once_and_nowhere_quoted(
    url: str, caplog: pytest.LogCaptureFixture
):
    pytest.importorskip("psycopg")
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(InvalidSettings, match="PostgreSQL's addresses") as caught,
    ):
        open_database(url)
    assert "s3cret" not in str(caught.value) + caplog.text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
