"""The pytest plugin: `def test_it(millpond): …` has a real broker of its own.

It is loaded in every pytest run of whoever has installed Millpond. Therefore it imports nothing of the broker until a
test asks for one, and adds three fixtures and a marker, and nothing else.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from millpond.testing.millpond import Millpond

MARKER: Final = "millpond"
MEANING: Final = (
    "millpond(**settings): settings of the broker that the `millpond` fixture starts for this test"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MEANING)


@pytest.fixture(scope="session")
def millpond_settings() -> Mapping[str, Any]:
    """Settings of the brokers that tests get; override it. A test's marker goes before it."""
    return {}


@pytest.fixture
def millpond(request: pytest.FixtureRequest, millpond_settings: Mapping[str, Any]) -> "Iterator[Millpond]":
    """A real broker for this test alone, on free ports, in memory."""
    from millpond.testing.millpond import Millpond

    with Millpond({**millpond_settings, **_marked(request)}) as broker:
        yield broker


@pytest.fixture(scope="session")
def millpond_session(millpond_settings: Mapping[str, Any]) -> "Iterator[Millpond]":
    """One broker for the whole run: its topics, its time and its faults are shared by all tests that use it."""
    from millpond.testing.millpond import Millpond

    with Millpond(millpond_settings) as broker:
        yield broker


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What markers say: a function's goes before its class's, and that before its module's."""
    settings: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError('@pytest.mark.millpond takes settings by name, such as retention="10s"')
        settings.update(marker.kwargs)
    return settings
