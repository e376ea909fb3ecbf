"""The log engine: buffers, flushes and commits on the write path; caches and plans on the read path;
transactions."""

from millpond.catalog.transactions import ProducerEpoch, TransactionalProducer
from millpond.log.buffer import AppendResult
from millpond.log.fetcher import FetchRequest, FetchResult
from millpond.log.limits import LogLimits
from millpond.log.log import Log
from millpond.log.roles import AppendRole, CatalogRole, FetchRole
from millpond.log.transactions import TransactionLimits, Transactions
from millpond.log.upkeep import Upkeep
from millpond.log.writer import Writer
from millpond.reading.offsets import TimedOffset

__all__ = [
    "AppendResult",
    "AppendRole",
    "CatalogRole",
    "FetchRequest",
    "FetchResult",
    "FetchRole",
    "Log",
    "LogLimits",
    "ProducerEpoch",
    "TimedOffset",
    "TransactionLimits",
    "TransactionalProducer",
    "Transactions",
    "Upkeep",
    "Writer",
]
