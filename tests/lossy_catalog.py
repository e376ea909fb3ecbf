"""A catalog that loses answers to COMMIT."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millpond.model.errors import CatalogFailed, CatalogUnavailable, OutcomeUnknown


class LossyDatabase:
    """By plan, a word for each write, and all is well when the plan is over:

    `refuse`       nothing is begun
    `fail`         nor is it, and it makes no sense to try again
    `lose before`  nothing takes effect, and nobody is told
    `lose after`   it does, and nobody is told
    """

    def __init__(self, database: Any, *plan: str) -> None:
        self._database, self._plan, self.writes = database, list(plan), 0

    @contextmanager
    def write(self) -> Iterator[Any]:
        act = self._plan.pop(0) if self._plan else "answer"
        self.writes += 1
        if act == "refuse":
            raise CatalogUnavailable(reason="not now")
        if act == "fail":
            raise CatalogFailed(reason="the disk is gone")
        try:
            with self._database.write() as tx:
                yield tx
                if act == "lose before":
                    raise OutcomeUnknown
        finally:
            if act == "lose after":
                raise OutcomeUnknown
