"""Refresh requests that wait long."""

import pytest

from millpond.topology import refresh_requests


@pytest.fixture
def long_refresh_timeout(monkeypatch):
    """A broker that answers late has looked all the same."""
    monkeypatch.setattr(refresh_requests, "REFRESH_TIMEOUT_S", 30.0)
