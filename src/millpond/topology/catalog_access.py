"""How code on the event loop reads and writes the catalog, which blocks."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from millpond.catalog.commits import CommitOperation
from millpond.catalog.database import CatalogTransaction

T = TypeVar("T")


class ReadCatalog(Protocol):
    """Runs a catalog read without blocking the event loop."""

    async def __call__(self, function: Callable[[CatalogTransaction], T], /) -> T: ...


class WriteCatalog(Protocol):
    """Runs an operation through the broker's commit queue, without blocking the event loop. Returns its value when it
    is committed, or raises its error. With `own_commit` it shares its commit with no other operation."""

    async def __call__(self, operation: CommitOperation, /, *, own_commit: bool = False) -> Any: ...
