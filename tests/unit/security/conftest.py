"""Fixtures for tests of TLS."""

import pytest
from tests.tls import Pki


@pytest.fixture
def pki(tmp_path):
    return Pki(tmp_path)
