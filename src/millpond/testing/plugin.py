"""The pytest plugin: `def test_it(millpond): …` has its own real broker.

pytest loads it in every run of a project that has Millpond installed. Therefore it imports no broker code
until a test requests a broker, and it adds only three fixtures and a marker.
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
    """Settings of the brokers that tests get; override this fixture. A test's marker takes precedence over
    it."""
    return {}


@pytest.fixture
def millpond(request: pytest.FixtureRequest, millpond_settings: Mapping[str, Any]) -> "Iterator[Millpond]":
    """A real broker for this test only, on free ports, in memory."""
    from millpond.testing.millpond import Millpond

    with Millpond({**millpond_settings, **_marked(request)}) as broker:
        yield broker


@pytest.fixture(scope="session")
def millpond_session(millpond_settings: Mapping[str, Any]) -> "Iterator[Millpond]":
    """One broker for the whole run. All tests that use it share its topics, its clock and its faults."""
    from millpond.testing.millpond import Millpond

    with Millpond(millpond_settings) as broker:
        yield broker


def _marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The settings from markers: a function's marker takes precedence over its class's, and that over its
    module's."""
    settings: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        if marker.args:
            raise pytest.UsageError('@pytest.mark.millpond takes settings by name, such as retention="10s"')
        settings.update(marker.kwargs)
    return settings
