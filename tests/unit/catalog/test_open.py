"""From a URL to a catalog, and what of that URL may be shown."""

import logging

import pytest

from millpond.catalog.open import open_database, redacted_url
from millpond.model.errors import InvalidSettings


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("postgresql://u:s3cret@h/db", "postgresql://h/db"),
        ("postgresql://u@h/db?password=s3cret", "postgresql://h/db"),
        ("postgresql:///db?user=u&password=s3cret", "postgresql:///db"),
        ("postgresql://u:p@s3cret@h/db", "postgresql://h/db"),
        ("postgresql://u:s3/cret@h/db", "postgresql://h/db"),
        ("postgresql://u@h/db?password=a@s3cret", "postgresql://…"),
        ("postgresql://u:s3cret?x@h/db", "postgresql://…"),
        ("postgresql://u:s3cret@h/db#s3cret", "postgresql://h/db"),
        ("host=h password=s3cret", "…"),
        ("sqlite:///data/me@work/what?/catalog.db", "sqlite:///data/me@work/what?/catalog.db"),
        ("memory://", "memory://"),
        ("./data", "./data"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str):
    assert redacted_url(url) == shown
    assert "s3cret" not in shown


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
