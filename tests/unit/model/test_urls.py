"""URLs in messages have no secrets."""

import pytest

from millpond.model.urls import has_secret, redacted_url


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
        ("s3://AKIA:s3/cret@bucket/x", "s3://bucket/x"),
        ("s3://bucket/x?secret_access_key=s3cret", "s3://bucket/x"),
        ("file:///data/me@work", "file:///data/me@work"),
        ("memory://", "memory://"),
        ("", ""),
        ("./data", "./data"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str):
    assert redacted_url(url) == shown
    assert "s3cret" not in shown


def test_a_url_with_a_secret_is_recognized():
    for url in (
        "postgresql://u:s3cret@h/db",
        "postgresql://u@h/db?password=s3cret",
        "postgresql://u:s3/cret@h/db",
        "host=h password=s3cret",
        "s3://bucket/x?secret_access_key=s3cret",
        "s3://bucket/x?region=a&session_token=s3cret",
    ):
        assert has_secret(url), url
    for url in (
        "postgresql://u@h:5432/db",
        "postgresql://u:@h/db",
        "postgresql://h/db?sslmode=require",
        "sqlite:///data/a:b@work/password=x",
        "s3://bucket/x?region=a",
        "memory://",
        "",
    ):
        assert not has_secret(url), url
