"""Millpond: one durable message log. `Broker` is the server as a type you can drive yourself."""

from millpond.broker import Broker
from millpond.log import AppendResult, FetchRequest, FetchResult
from millpond.model.errors import MillpondError
from millpond.model.ids import TopicPartition
from millpond.records import Record
from millpond.settings import Settings
from millpond.version import __version__

__all__ = [
    "AppendResult",
    "Broker",
    "FetchRequest",
    "FetchResult",
    "MillpondError",
    "Record",
    "Settings",
    "TopicPartition",
    "__version__",
]
