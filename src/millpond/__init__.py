"""Millpond: one durable message log.

`Broker` is the server as a class that you can run in your own process. `Producer`, `Consumer`, `Publisher`,
`Subscriber`, `Admin` and their asyncio counterparts connect to a broker over gRPC; `errors` holds the errors that
they raise. Names are imported on first use, so that a client does not load the broker's code.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from millpond.version import __version__

if TYPE_CHECKING:
    from millpond import errors
    from millpond.broker import Broker
    from millpond.client import (
        Admin,
        AsyncAdmin,
        AsyncConsumer,
        AsyncDelivery,
        AsyncPayloads,
        AsyncProducer,
        AsyncPublisher,
        AsyncSubscriber,
        Consumer,
        Delivery,
        Message,
        Outcome,
        PayloadReference,
        Payloads,
        Placed,
        Polled,
        Producer,
        Publisher,
        Subscriber,
        Tls,
    )
    from millpond.log import AppendResult, FetchRequest, FetchResult
    from millpond.model.errors import MillpondError
    from millpond.model.ids import TopicPartition
    from millpond.records import Record
    from millpond.settings import Settings

__all__ = [
    "Admin",
    "AppendResult",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncDelivery",
    "AsyncPayloads",
    "AsyncProducer",
    "AsyncPublisher",
    "AsyncSubscriber",
    "Broker",
    "Consumer",
    "Delivery",
    "FetchRequest",
    "FetchResult",
    "Message",
    "MillpondError",
    "Outcome",
    "PayloadReference",
    "Payloads",
    "Placed",
    "Polled",
    "Producer",
    "Publisher",
    "Record",
    "Settings",
    "Subscriber",
    "Tls",
    "TopicPartition",
    "__version__",
    "errors",
]

_MODULES = {
    "millpond.broker": ("Broker",),
    "millpond.client": (
        "Admin",
        "AsyncAdmin",
        "AsyncConsumer",
        "AsyncDelivery",
        "AsyncPayloads",
        "AsyncProducer",
        "AsyncPublisher",
        "AsyncSubscriber",
        "Consumer",
        "Delivery",
        "Message",
        "Outcome",
        "PayloadReference",
        "Payloads",
        "Placed",
        "Polled",
        "Producer",
        "Publisher",
        "Subscriber",
        "Tls",
    ),
    "millpond.log": ("AppendResult", "FetchRequest", "FetchResult"),
    "millpond.model.errors": ("MillpondError",),
    "millpond.model.ids": ("TopicPartition",),
    "millpond.records": ("Record",),
    "millpond.settings": ("Settings",),
}
_MODULE_OF = {name: home for home, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name == "errors":
        return import_module("millpond.errors")
    home = _MODULE_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
