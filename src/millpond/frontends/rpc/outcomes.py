"""Records how the calls of one method end, and sends errors to clients."""

import logging
from typing import Any, Final

import grpc

from millpond.frontends.rpc.context import GrpcContext
from millpond.frontends.rpc.errors import DETAILS_KEY, RETRY_AFTER_KEY, refusal_of, status_of
from millpond.model.errors import Defect, MillpondError, QuotaExceeded
from millpond.observability.metrics import AnswerMetrics

OK: Final = grpc.StatusCode.OK.name
logger = logging.getLogger(__name__)


class CallOutcomes:
    """The outcomes of the calls of one method."""

    def __init__(self, method: str, metrics: AnswerMetrics, retry_after_ms: int) -> None:
        self._method = method
        self._metrics = metrics
        self._retry_after_ms = retry_after_ms

    def responded(self, seconds: float) -> None:
        """A call with one response has succeeded."""
        self.done()
        self._metrics.took(self._method, seconds)

    def done(self) -> None:
        self._metrics.answered(self._method, OK)

    async def refuse(self, context: GrpcContext, error: Exception) -> None:
        if not isinstance(error, MillpondError):
            logger.error(
                "unexpected error in gRPC request",
                exc_info=error,
                extra={"request": self._method, "error": error},
            )
            error = Defect(reason="see the broker's log")
        refusal = refusal_of(error)
        self._metrics.answered(self._method, refusal.code.name)
        trailers: list[tuple[str, Any]] = [(DETAILS_KEY, status_of(refusal, self._retry_after_ms))]
        if isinstance(error, QuotaExceeded):
            trailers.append((RETRY_AFTER_KEY, str(error.facts["retry_after_ms"])))
        await context.abort(refusal.code, refusal.message, tuple(trailers))
