"""Which hosts are this machine."""

import pytest

from millpond.model.addresses import is_loopback


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *[(host, True) for host in ("127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1")],
        *[(host, False) for host in ("127.example.com", "localhost.example", "::1234", "0.0.0.0", "::", "a")],
    ],
)
def test_an_address_is_loopback_by_its_value_and_not_by_its_first_characters(host, expected):
    assert is_loopback(host) is expected
