"""The services and limits that every handler of the HTTP interface may use."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from starlette.types import Receive

from millpond.frontends.web.hosts import Hosts
from millpond.frontends.web.limits import WebLimits
from millpond.frontends.web.request_memory import ClientGone
from millpond.observability.metrics import AnswerMetrics
from millpond.queues import PullConsumers, Queues
from millpond.security.gate import Gate
from millpond.security.guards import Guards
from millpond.security.throttling import QuotaPacer
from millpond.service import (
    Administration,
    BrowserLogin,
    ClusterAdministration,
    MessageWriter,
    MetricsPage,
    PayloadTransfers,
    Poller,
    SecurityAdministration,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NotReady:
    """Why messages are not accepted: a reason for programs and a message for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WebServices:
    """The components that the HTTP interface uses."""

    messages: MessageWriter
    poller: Poller
    payloads: PayloadTransfers
    queues: Queues
    pulling: PullConsumers
    administration: Administration
    cluster: ClusterAdministration
    security: SecurityAdministration
    gate: Gate
    login: BrowserLogin
    default_partitions: int
    metrics_page: MetricsPage
    metrics: AnswerMetrics
    why_not_ready: Callable[[], NotReady | None]
    version: str
    listeners: Mapping[str, str]


class Site:
    """The services, the limits, the accepted host names, the guards and the pace of streams, and threads for work that
    would block the event loop. `scheme` is that of the brokers' URLs."""

    def __init__(self, services: WebServices, limits: WebLimits, hosts: Hosts, scheme: str = "http") -> None:
        self.services = services
        self.limits = limits
        self.hosts = hosts
        self.scheme = scheme
        self.streams = 0
        self.guards = Guards()
        self.pacer = QuotaPacer()
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="millpond-web")

    @property
    def is_secure(self) -> bool:
        """Whether browsers use https."""
        return self.scheme == "https"

    async def run_off_loop_if_large(self, size: int, work: Callable[[], T]) -> T:
        """Run small work directly and larger work on a thread."""
        if size <= self.limits.on_loop_bytes:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=False)


async def cancel_on_disconnect(receive: Receive, work: Awaitable[T]) -> T:
    """Returns the result of `work`. If the client disconnects first, cancels it and raises `ClientGone`."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
