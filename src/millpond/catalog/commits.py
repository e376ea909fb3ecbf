"""Numbered commits: many operations in one COMMIT, with a result that survives a lost connection.

A writer's k-th commit first moves its `writers` row from k-1 to k, and last stores its result there. If the
response to COMMIT is lost, the writer sends the same k again. If the row already holds k with the writer's
token, the stored result is the response. If the first transaction is still undecided, the row lock makes the
second one wait for it. Each operation has its own savepoint, so a failed operation does not undo the others.
"""

import json
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final

from millpond.catalog import writers
from millpond.catalog.database import CatalogTransaction, Database, savepoint
from millpond.model import errors
from millpond.model.backoff import retry_delay
from millpond.model.errors import (
    CatalogFailed,
    CatalogUnavailable,
    CatalogWentBack,
    Defect,
    MillpondError,
    OutcomeUnknown,
)
from millpond.model.ids import Session

Json = Any
CommitOperation = Callable[[CatalogTransaction], Json]
"""Runs inside the transaction and returns a value that JSON can represent. Raises a `MillpondError` to be
undone alone."""

_to_json: Final = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps creates an encoder per call

PROGRAMMING_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)

ATTEMPTS_MAX: Final = 6
RETRY_DELAY_S: Final = 0.05
LIFE_BYTES: Final = 4
"""Random bytes in a token. Few are enough: a session has few `Committer` instances."""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of one operation: a value, or the error that refused it."""

    value: Json = None
    error: MillpondError | None = None
    kept: str = field(default="", compare=False, repr=False)
    """The value or error as it is stored with the commit."""


class Committer:
    """The commits of one (session, lane), one at a time. Call it from one thread."""

    def __init__(
        self,
        database: Database,
        session: Session,
        lane: int = 0,
        *,
        sleep: Callable[[float], None] = time.sleep,
        random: Random | None = None,
        new_token: Callable[[int], str] = secrets.token_hex,
    ) -> None:
        """`random` spreads retries. `new_token` returns random bytes as text; they distinguish the commits of
        this instance from those of another."""
        self._database = database
        self._session = session
        self._lane = lane
        self._last = 0
        life = new_token(LIFE_BYTES)
        self._tokens = (f"{life}-{number}" for number in count())
        self._sleep = sleep
        self._random = random or Random()  # noqa: S311  # jitter, not a secret

    def commit(self, operations: Sequence[CommitOperation]) -> list[OperationResult]:
        """Run all operations in one transaction. Raises `WriterDead`, or `CatalogUnavailable` if nothing was
        committed, or `OutcomeUnknown` if several attempts could not determine the outcome."""
        tries = self.tries(operations)
        while True:
            try:
                self._sleep(next(tries))
            except StopIteration as end:
                outcomes: list[OperationResult] = end.value
                return outcomes

    def tries(self, operations: Sequence[CommitOperation]) -> Generator[float, None, list[OperationResult]]:
        """The attempts of `commit`, as a generator that yields the seconds to wait before the next attempt.
        For callers that do not wait with `sleep`."""
        token = next(self._tokens)
        unknown: OutcomeUnknown | None = None
        for attempt in range(ATTEMPTS_MAX):
            try:
                return self._attempt(operations, token)
            except CatalogFailed:
                raise
            except OutcomeUnknown as error:
                unknown = error
            except CatalogUnavailable as error:
                if unknown is None and attempt >= ATTEMPTS_MAX // 2:
                    raise error
            yield retry_delay(RETRY_DELAY_S, attempt, self._random)
        raise unknown or CatalogUnavailable(reason="the catalog kept refusing the commit")

    def _attempt(self, operations: Sequence[CommitOperation], token: str) -> list[OperationResult]:
        number = self._last + 1
        try:
            with self._database.write() as tx:
                taken = writers.claim_commit_number(tx, self._session, self._lane, number, token)
                if taken is None:
                    outcomes = _run_all(tx, operations)
                    kept = ",".join([outcome.kept for outcome in outcomes])
                    writers.store_result(tx, self._session, self._lane, f"[{kept}]")
        except _OnlyOneRefusedError as refused:
            return [OperationResult(error=refused.error)]
        if taken is None:
            self._last = number
            return outcomes
        return self._already_taken(taken, operations, token)

    def _already_taken(
        self, taken: writers.LastCommit, operations: Sequence[CommitOperation], token: str
    ) -> list[OperationResult]:
        """The number belongs to this commit, whose response was lost, or to an earlier commit whose outcome
        stayed unknown."""
        if taken.number < self._last:
            raise CatalogWentBack(
                reason=f"commit {self._last} was confirmed, and now the last one is {taken.number}"
            )
        self._last = taken.number
        if taken.token == token and taken.result is not None:
            return _decode(taken.result)
        return self._attempt(operations, token)


class _OnlyOneRefusedError(Exception):
    def __init__(self, error: MillpondError) -> None:
        self.error = error


def _run_all(tx: CatalogTransaction, operations: Sequence[CommitOperation]) -> list[OperationResult]:
    """A single operation needs no savepoint: rolling back the transaction is enough and saves two round trips."""
    if len(operations) > 1:
        return [_run(tx, operation) for operation in operations]
    try:
        return [_outcome(tx, operation) for operation in operations]
    except CatalogUnavailable:
        raise
    except MillpondError as error:
        raise _OnlyOneRefusedError(error) from error


def _outcome(tx: CatalogTransaction, operation: CommitOperation) -> OperationResult:
    """The operation's value, if JSON can represent it. A bug in one operation fails only that operation.
    Errors of the engine are not caught here: they may have ended the transaction."""
    try:
        value = operation(tx)
        return OperationResult(value, kept=_to_json([value]))
    except PROGRAMMING_ERRORS as error:
        raise Defect(reason=repr(error)) from error


def _run(tx: CatalogTransaction, operation: CommitOperation) -> OperationResult:
    try:
        with savepoint(tx):
            return _outcome(tx, operation)
    except CatalogUnavailable:
        raise
    except MillpondError as error:
        return OperationResult(error=error, kept=_to_json([None, encode_error(error)]))


def _decode(result: str) -> list[OperationResult]:
    return [
        OperationResult(each[0], decode_error(each[1]) if len(each) == 2 else None)
        for each in json.loads(result)
    ]


def encode_error(error: MillpondError) -> Json:
    """An error in the form in which a stored result contains it."""
    facts = {name: value for name, value in error.facts.items() if isinstance(value, int | str)}
    return [type(error).__name__, str(error), facts]


def decode_error(encoded: Json) -> MillpondError:
    name, message, facts = encoded
    kind: type[MillpondError] = getattr(errors, name)
    return kind(message, **facts)
